package main

import (
	"crypto/subtle"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"
)

// askNewPassword asks for a password twice on the terminal, which shows none of
// it. Where there is no terminal nothing is asked.
func (c *command) askNewPassword() (string, error) {
	terminal, ok := c.stdin.(*os.File)
	if !ok || !term.IsTerminal(int(terminal.Fd())) {
		return "", errors.New("there is no terminal to ask for a password on; set " + keyPasswordVariable + " in the environment, or name a file with it in key.password_file")
	}
	first, err := c.askSecret(terminal, "Password for the new key: ")
	if err != nil {
		return "", err
	}
	if len(first) == 0 {
		return "", errors.New("the password is empty")
	}
	again, err := c.askSecret(terminal, "The same once more: ")
	if err != nil {
		return "", err
	}
	if subtle.ConstantTimeCompare(first, again) != 1 {
		return "", errors.New("the two passwords differ")
	}
	return string(first), nil
}

// askSecret reads a line that is not shown. An interrupt gives the terminal its
// echo back before it ends the process as usual.
func (c *command) askSecret(terminal *os.File, prompt string) ([]byte, error) {
	fd := int(terminal.Fd())
	state, err := term.GetState(fd)
	if err != nil {
		return nil, errors.New("the terminal does not answer")
	}
	interrupt := make(chan os.Signal, 1)
	signal.Notify(interrupt, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	done := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case sig := <-interrupt:
			_ = term.Restore(fd, state)
			signal.Stop(interrupt)
			if p, err := os.FindProcess(os.Getpid()); err == nil {
				_ = p.Signal(sig)
			}
		case <-done:
			signal.Stop(interrupt)
		}
	}()
	defer func() { close(done); <-ended }()

	_, _ = fmt.Fprint(c.stderr, prompt)
	b, err := term.ReadPassword(fd)
	_, _ = fmt.Fprintln(c.stderr)
	if err != nil {
		return nil, errors.New("no password was given")
	}
	return b, nil
}
