package main

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// adminTokenBytes is how much randomness an admin token holds.
const adminTokenBytes = 32

// adminTokenFile is where a core keeps the token that its commands use.
func adminTokenFile(dataDir string) string { return filepath.Join(dataDir, "admin.token") }

// loadOrCreateAdminToken reads the admin token of a data directory, or makes
// one at the first start, in a file of mode 0600 that is flushed to the disk
// with its directory; created tells which. A file that is there is never
// replaced. The error carries exit status 3 and says what to do.
func loadOrCreateAdminToken(dataDir string) (token Secret, created bool, err error) {
	file := adminTokenFile(dataDir)
	token, err = readAdminToken(file)
	if errors.Is(err, fs.ErrNotExist) {
		token, err = createAdminToken(file)
		created = err == nil
	}
	if err != nil {
		return "", false, exitf(exitStart, "%s", tokenAdvice(file, err))
	}
	return token, created, nil
}

func createAdminToken(file string) (Secret, error) {
	b := make([]byte, adminTokenBytes)
	if _, err := rand.Read(b); err != nil {
		return "", err
	}
	token := Secret(base64.RawURLEncoding.EncodeToString(b))
	part, err := createPart(file)
	if err != nil {
		return "", err
	}
	defer part.discard()
	if _, err := part.WriteString(token.Reveal() + "\n"); err != nil {
		return "", err
	}
	return token, part.place(false)
}

// readAdminToken reads a token from a regular file, no link, that nobody but
// its owner may reach.
func readAdminToken(file string) (Secret, error) {
	st, err := os.Lstat(file)
	if err != nil {
		return "", err
	}
	if !st.Mode().IsRegular() {
		return "", errSecretFile("is no regular file; remove it, and the next start makes a new one")
	}
	b, err := readSecret(file, maxPasswordFile, 0o077)
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(b))
	if raw, err := base64.RawURLEncoding.Strict().DecodeString(token); err != nil || len(raw) != adminTokenBytes {
		return "", errSecretFile("holds no token; remove it, and the next start makes a new one")
	}
	return Secret(token), nil
}

// tokenAdvice says what is wrong with the file of the admin token and what to
// do.
func tokenAdvice(file string, err error) string {
	var wrong errSecretFile
	switch {
	case errors.As(err, &wrong):
		return "the admin token's file " + file + " " + wrong.Error()
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Sprintf("there is no %s; pharos serve makes it at its first start; is this its data directory? Name it with --data-dir", file)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Sprintf("%s cannot be used, permission denied; run the command as the user that runs pharos serve", file)
	}
	return fmt.Sprintf("%s cannot be used: %s", file, reason(err))
}
