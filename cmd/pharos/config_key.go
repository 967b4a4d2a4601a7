package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/pharos-nostr/pharos/monitor/nostr"
)

// keyPasswordVariable is the environment's name of the password of an encrypted
// key. It is no key of the configuration, so that no file can hold it.
const keyPasswordVariable = "PHAROS_KEY_PASSWORD"

// The names of what a service manager may provide (systemd's LoadCredential).
const (
	keyCredential      = "service.key"
	passwordCredential = "key_password"
)

// lookupEnv is a variable of an environment.
func lookupEnv(environ []string, name string) string {
	for _, e := range environ {
		if value, ok := strings.CutPrefix(e, name+"="); ok {
			return value
		}
	}
	return ""
}

// credential is the file of $CREDENTIALS_DIRECTORY with that name; false when
// there is none.
func credential(environ []string, name string) (file string, ok bool) {
	dir := lookupEnv(environ, "CREDENTIALS_DIRECTORY")
	if dir == "" {
		return "", false
	}
	file = filepath.Join(dir, name)
	_, err := os.Stat(file)
	return file, !errors.Is(err, fs.ErrNotExist)
}

// keyFile is the service key's file where no service manager provides one.
func (c *Config) keyFile(dataDir string) string {
	if c.Key.File != "" {
		return c.Key.File
	}
	return filepath.Join(dataDir, "service.key")
}

// keyPlace is the service key's file: key.file, else what the service manager
// provides, else the one of the data directory.
func (c *Config) keyPlace(dataDir string, environ []string) (file string, provided bool) {
	if c.Key.File == "" {
		if file, ok := credential(environ, keyCredential); ok {
			return file, true
		}
	}
	file = c.keyFile(dataDir)
	credentials := lookupEnv(environ, "CREDENTIALS_DIRECTORY")
	return file, credentials != "" && filepath.Dir(file) == filepath.Clean(credentials)
}

// keyPassword yields the password of the service key: that of the environment,
// else of key.password_file, else what the service manager provides. nil when
// there is none of them.
func (c *Config) keyPassword(environ []string) nostr.Password {
	if p := lookupEnv(environ, keyPasswordVariable); p != "" {
		return func() (string, error) { return p, nil }
	}
	file, provided := c.Key.PasswordFile, false
	if file == "" {
		var ok bool
		if file, ok = credential(environ, passwordCredential); !ok {
			return nil
		}
		provided = true
	}
	return func() (string, error) {
		p, err := readPassword(file, provided)
		if err != nil {
			return "", errors.New("the password file " + err.Error())
		}
		return p.Reveal(), nil
	}
}

// errNoPassword says how to give one.
var errNoPassword = errors.New("its password is needed: name a file with it in key.password_file, or set " + keyPasswordVariable + " in the environment")

func noPassword() (string, error) { return "", errNoPassword }

// openKey reads the service key, or makes it where there is no file, encrypted
// when a password is configured; created tells which. What a service manager
// should provide is never made. file is where the key is; err carries an exit
// status and says what to do.
func (c *Config) openKey(dataDir string, environ []string) (key nostr.Key, created bool, file string, err error) {
	file, provided := c.keyPlace(dataDir, environ)
	password := c.keyPassword(environ)
	open := nostr.KeyFile{Path: file, Provided: provided, Password: password}
	if password == nil {
		open.Password = noPassword
	}
	key, err = open.Load()
	if errors.Is(err, fs.ErrNotExist) && !provided {
		created = true
		key, err = nostr.KeyFile{Path: file, Password: password}.Create()
	}
	if err != nil {
		return nostr.Key{}, false, file, keyError(file, err)
	}
	return key, created, file, nil
}
