package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"time"
	"unicode/utf8"
)

const (
	maxBody         = 2 << 20          // bytes, of an operator's request
	bodyTimeout     = 10 * time.Second // for all of it
	maxNesting      = 8                // of objects and arrays; ours need two
	jsonContentType = "application/json"
)

// readBody reads a request's body, at most limit bytes, and puts it back for
// huma. within is the deadline that was set for it: by observe, bodyTimeout.
func readBody(w http.ResponseWriter, r *http.Request, limit int64, within time.Duration) ([]byte, *problem) {
	if r.ContentLength > limit {
		return nil, tooLarge(limit)
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, tooLarge(limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, newProblem(http.StatusRequestTimeout, fmt.Sprintf("the body did not arrive within %d s", int(within.Seconds())))
	case err != nil:
		return nil, newProblem(http.StatusBadRequest, "the body could not be read")
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	return body, nil
}

func tooLarge(limit int64) *problem {
	return newProblem(http.StatusRequestEntityTooLarge, fmt.Sprintf("the body is larger than %d bytes", limit))
}

// checkBody refuses what huma would let pass, or not see: another content type
// than JSON, which is all that an HTML form of another site can send, text that
// is not UTF-8, a field given twice, deep nesting.
func checkBody(r *http.Request, body []byte) *problem {
	if len(body) == 0 {
		return nil // whether it may be missing, huma knows
	}
	media, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	charset := params["charset"]
	if err != nil || media != jsonContentType || charset != "" && charset != "utf-8" && charset != "UTF-8" || r.Header.Get("Content-Encoding") != "" {
		return newProblem(http.StatusUnsupportedMediaType, "send the body as Content-Type: application/json, in UTF-8, without a Content-Encoding")
	}
	r.Header.Set("Content-Type", jsonContentType) // the one spelling that huma knows
	if !utf8.Valid(body) {
		return newProblem(http.StatusBadRequest, "the body is not UTF-8")
	}
	if err := checkJSON(body); err != nil {
		return newProblem(http.StatusBadRequest, "the body is no JSON that is taken here", problemError{Location: "body", Message: err.Error()})
	}
	return nil
}

// checkJSON wants one JSON value, nested no deeper than maxNesting, with no
// field twice: of two, another reader of the body may see the other one.
func checkJSON(body []byte) error {
	type level struct {
		fields map[string]bool // nil in an array
		value  bool            // in an object: the next token is a value
	}
	var open []level
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	for begun := false; ; begun = true {
		token, err := dec.Token()
		if errors.Is(err, io.EOF) && begun && len(open) == 0 {
			return nil
		}
		if err != nil {
			return fmt.Errorf("it breaks off or is malformed at byte %d", dec.InputOffset())
		}
		if begun && len(open) == 0 {
			return errors.New("something follows its end")
		}
		delim, _ := token.(json.Delim)
		if delim == '}' || delim == ']' {
			open = open[:len(open)-1]
			continue
		}
		if n := len(open); n > 0 && open[n-1].fields != nil {
			if in := &open[n-1]; in.value {
				in.value = false
			} else {
				name, _ := token.(string)
				if in.fields[name] {
					return fmt.Errorf("the field %q is given twice", printable(name))
				}
				in.fields[name], in.value = true, true
				continue
			}
		}
		switch delim {
		case '{':
			open = append(open, level{fields: map[string]bool{}})
		case '[':
			open = append(open, level{})
		}
		if len(open) > maxNesting {
			return fmt.Errorf("it is nested deeper than %d levels", maxNesting)
		}
	}
}
