package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/pharos-nostr/pharos/monitor/nostr"
)

type keygenCmd struct {
	Out     string `help:"Where to write it; by default where the configuration says (key.file, else service.key in the data directory)."`
	Encrypt bool   `help:"Encrypt it (ncryptsec, NIP-49), with the password of $$PHAROS_KEY_PASSWORD, of key.password_file, or asked for."`
}

// Run makes a key and prints its npub, never the key. An existing file is
// never overwritten.
func (k *keygenCmd) Run(c *command) error {
	file := nostr.KeyFile{Path: k.Out}
	if k.Out == "" || k.Encrypt {
		cfg, err := c.load()
		if err != nil {
			return err
		}
		if k.Encrypt {
			if file.Password = cfg.keyPassword(c.environ); file.Password == nil {
				file.Password = c.askNewPassword
			}
		}
		if k.Out == "" {
			dir := cfg.dataDir(os.Getuid())
			file.Path = cfg.keyFile(dir)
			if filepath.Dir(file.Path) == filepath.Clean(dir) {
				if err := makeDataDir(dir); err != nil {
					return err
				}
			}
		}
	}
	if _, err := os.Lstat(file.Path); err == nil { // nobody should type a password for nothing
		return keyError(file.Path, fs.ErrExist)
	}
	key, err := file.Create()
	if err != nil {
		return keyError(file.Path, err)
	}
	_, err = fmt.Fprintln(c.stdout, key.Npub())
	return err
}

// keyError says what is wrong with the key file and what to do; err is of
// package nostr.
func keyError(file string, err error) error {
	switch {
	case errors.Is(err, nostr.ErrBadKey): // which says it all
		return exitWith(exitStart, err)
	case errors.Is(err, fs.ErrExist):
		return exitf(exitStart, "the key file %s is there already and is never overwritten: choose another name, or move it away", file)
	case errors.Is(err, fs.ErrNotExist):
		return exitf(exitStart, "the key file %s cannot be made: there is no directory %s; make it, or choose another place", file, filepath.Dir(file))
	}
	return exitf(exitStart, "the key file %s cannot be used: %s; mend that, or choose another place", file, reason(err))
}
