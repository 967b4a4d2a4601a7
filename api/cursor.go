package api

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

// cursor is the place after which a page begins: the sort key of the last
// relay of the page before. It holds no position and no generation, so that it
// stays good while relays come and go.
type cursor struct {
	rank uint64 // of the sort, 0 where the URL alone decides
	url  string // "" = from the start
}

// cursorVersion is changed with the meaning of a cursor: older ones are then
// refused, never misread.
const cursorVersion = 1

// boundBytes is how much of the hash of the filters a cursor carries.
const boundBytes = 8

// maxCursor is the length of the longest cursor: a version, a hash, a rank and
// a URL of 512 bytes in base64.
const maxCursor = (1 + boundBytes + binary.MaxVarintLen64 + 512 + 2) / 3 * 4

// encode writes c for requests of the same list, filters and sort, which bound
// tells.
func (c cursor) encode(bound string) string {
	sum := sha256.Sum256([]byte(bound))
	raw := append([]byte{cursorVersion}, sum[:boundBytes]...)
	raw = binary.AppendUvarint(raw, c.rank)
	return base64.RawURLEncoding.EncodeToString(append(raw, c.url...))
}

var (
	errNoCursor      = errors.New("is no cursor of this list: take next_cursor of the page before, or leave it out to begin anew")
	errForeignCursor = errors.New("belongs to a request with other filters or another sort: repeat those of the page before, or leave it out to begin anew")
)

// decodeCursor reads what encode wrote for the same bound.
func decodeCursor(text, bound string) (cursor, error) {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(text) > maxCursor || len(raw) < 1+boundBytes || raw[0] != cursorVersion {
		return cursor{}, errNoCursor
	}
	rank, n := binary.Uvarint(raw[1+boundBytes:])
	if n <= 0 {
		return cursor{}, errNoCursor
	}
	c := cursor{rank: rank, url: string(raw[1+boundBytes+n:])}
	if !strings.HasPrefix(c.url, "ws") {
		return cursor{}, errNoCursor
	}
	if c.encode(bound) != text {
		return cursor{}, errForeignCursor
	}
	return c, nil
}

// badCursor tells of an error of decodeCursor.
func badCursor(err error) *huma.ErrorDetail {
	return &huma.ErrorDetail{Location: "query.cursor", Message: err.Error()}
}
