package main

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/pharos-nostr/pharos/monitor/nostr"
)

// enrolment is what a vantage knows of its core, in DATA_DIR/vantage.json.
type enrolment struct {
	Core     string    `json:"core"` // URL
	Name     string    `json:"name"`
	Group    string    `json:"group"`
	Pubkey   string    `json:"pubkey"` // of the key that was enrolled
	Enrolled time.Time `json:"enrolled_at"`
}

// loadEnrolment reads the file. A missing one is fs.ErrNotExist; other errors
// carry an exit status.
func loadEnrolment(file string) (enrolment, error) {
	b, err := readRegular(file, maxConfigFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return enrolment{}, err
	case err != nil:
		return enrolment{}, exitf(exitStart, "%s cannot be read: %s", file, reason(err))
	}
	var e enrolment
	if err := json.Unmarshal(b, &e); err != nil || e.Core == "" || e.Name == "" || e.Pubkey == "" {
		return enrolment{}, exitf(exitStart, "%s is damaged: restore it, or move it away and enrol this machine anew with a token of the core's", file)
	}
	return e, nil
}

// matches refuses another core and another key than those of the enrolment.
func (e *enrolment) matches(file, core string, key nostr.Key) error {
	switch {
	case e.Core != core:
		return exitf(exitUsage, "this machine is enrolled as vantage %s of %s, not of %s: name that core, or use another --data-dir for this one. If the core has only moved, write its new address in %s; if this machine shall leave it, revoke the vantage there, move %s away and start with a token of the other core", e.Name, e.Core, core, file, file)
	case e.Pubkey != key.Pubkey():
		return exitf(exitStart, "the key in %s is not the one that was enrolled: restore that, or move %s away and enrol this machine anew with a token of the core's", filepath.Join(filepath.Dir(file), "vantage.key"), file)
	}
	return nil
}

// save writes the file, whole or not at all, for the owner alone.
func (e *enrolment) save(file string) (err error) {
	b, err := json.MarshalIndent(e, "", "  ")
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(file), ".vantage-*.json") // of mode 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	_, err = f.Write(append(b, '\n'))
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), file); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(file))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
