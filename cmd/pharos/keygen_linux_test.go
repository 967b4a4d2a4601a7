package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pharos-nostr/pharos/monitor/nostr"
)

// terminal is a pseudo-terminal: what a person has, and what the program has.
func terminal(t *testing.T) (person, program *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatalf("this test needs a pseudo-terminal: %v", err)
	}
	t.Cleanup(func() { _ = person.Close() })
	fd := int(person.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = program.Close() })
	return person, program
}

// A person types the password twice and sees none of it.
func TestKeygenAsks(t *testing.T) {
	for name, c := range map[string]struct {
		typed  []string
		status int
		says   string
	}{
		"the same":  {[]string{"open sesame", "open sesame"}, 0, ""},
		"different": {[]string{"open sesame", "open sesam"}, exitStart, "the two passwords differ"},
		"none":      {[]string{""}, exitStart, "the password is empty"},
	} {
		t.Run(name, func(t *testing.T) {
			person, program := terminal(t)
			file := filepath.Join(t.TempDir(), "service.key")
			out, status := &lockedBuffer{}, make(chan int, 1)
			go func() {
				status <- run(t.Context(), []string{"--config", "testdata/config/good/empty.yaml", "keygen", "--encrypt", "--out", file}, process{stdin: program, stdout: out, stderr: program})
			}()
			seen := &bytes.Buffer{}
			read := func(until string) {
				b := make([]byte, 1)
				for !strings.Contains(seen.String(), until) {
					if _, err := person.Read(b); err != nil {
						t.Fatalf("%v after %q", err, seen)
					}
					seen.Write(b)
				}
			}
			for i, prompt := range []string{"Password for the new key: ", "The same once more: "}[:len(c.typed)] {
				read(prompt)
				echoIsOff(t, program)
				if _, err := person.WriteString(c.typed[i] + "\n"); err != nil {
					t.Fatal(err)
				}
			}
			if c.says != "" {
				read(c.says)
			}
			if got := <-status; got != c.status {
				t.Errorf("status %d, %q", got, seen)
			}
			if strings.Contains(seen.String()+out.String(), "open sesam") {
				t.Errorf("the password is shown: %q, %q", seen, out)
			}
			key, err := nostr.KeyFile{Path: file, Password: func() (string, error) { return "open sesame", nil }}.Load()
			if made := err == nil && key.Npub() == strings.TrimSpace(out.String()); made != (c.status == 0) {
				t.Errorf("made %v: %v", made, err)
			}
			if state, err := unix.IoctlGetTermios(int(program.Fd()), unix.TCGETS); err != nil || state.Lflag&unix.ECHO == 0 {
				t.Errorf("the terminal is left without its echo: %v", err)
			}
		})
	}
}

// echoIsOff waits until the terminal hides what is typed: the prompt comes a
// moment before.
func echoIsOff(t *testing.T, terminal *os.File) {
	t.Helper()
	for t.Context().Err() == nil {
		state, err := unix.IoctlGetTermios(int(terminal.Fd()), unix.TCGETS)
		if err != nil {
			t.Fatal(err)
		}
		if state.Lflag&unix.ECHO == 0 {
			return
		}
	}
}
