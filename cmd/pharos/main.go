package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/monitor/nostr"
)

func main() {
	os.Exit(run(context.Background(), os.Args[1:], process{
		stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, environ: os.Environ(),
	}))
}

// The exit statuses (config.md).
const (
	exitFine  = 0
	exitBad   = 1 // the answer is bad: a relay down, unhealthy
	exitUsage = 2 // usage or configuration
	exitStart = 3 // could not start: port, database, key
)

// process is what a command has of the world around it.
type process struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	environ        []string
	// In place of the operating system's; nil = those.
	signals <-chan os.Signal // to end
	hangups <-chan os.Signal // to reload
}

// exitError ends a command with a status. Its text is one plain sentence; an
// empty one says that everything is said already.
type exitError struct {
	status int
	text   string
}

func (e *exitError) Error() string { return e.text }

func exitf(status int, format string, args ...any) error {
	return &exitError{status, fmt.Sprintf(format, args...)}
}

// exitWith ends a command with a status and what err says.
func exitWith(status int, err error) error { return &exitError{status, sentence(err)} }

// kinds are the errors that programs tell apart by; to people their words say
// nothing that the rest of the text does not.
var kinds = []error{monitor.ErrInvalid, monitor.ErrNotFound, monitor.ErrConflict, monitor.ErrUnavailable, nostr.ErrBadKey}

// sentence is an error for people: its text without the words of the kinds,
// where they stand between colons.
func sentence(err error) string {
	lines := strings.Split(err.Error(), "\n")
	for i, line := range lines {
		parts := strings.Split(line, ": ")
		kept := slices.DeleteFunc(slices.Clone(parts), func(part string) bool {
			return slices.ContainsFunc(kinds, func(kind error) bool { return part == kind.Error() })
		})
		if len(kept) > 0 {
			lines[i] = strings.Join(kept, ": ")
		}
	}
	return strings.Join(lines, "\n")
}

// commandLine is the grammar of the command line.
type commandLine struct {
	Config    string  `name:"config" help:"Configuration file; by default $$PHAROS_CONFIG, else pharos.yaml if it is there."`
	DataDir   *string `name:"data-dir" help:"Where key and history are kept (data_dir)."`
	Listen    *string `name:"listen" help:"Where HTTP and the relay answer (listen)."`
	Relays    *string `name:"relays" help:"Relays to watch, one URL per line (relay_files)."`
	LogLevel  string  `name:"log-level" enum:"debug,info,warn,error" default:"info" env:"PHAROS_LOG_LEVEL" help:"How much is logged: debug, info, warn or error."`
	LogFormat string  `name:"log-format" enum:"text,json" default:"text" env:"PHAROS_LOG_FORMAT" help:"How it is logged: text or json."`

	Serve     serveCmd    `cmd:"" help:"Watch relays, decide, publish and answer: everything in one process."`
	Vantage   vantageCmd  `cmd:"" help:"Probe for a core on another machine; opens no port."`
	Check     checkCmd    `cmd:"" help:"Probe relays once, now, and say what was seen."`
	Keygen    keygenCmd   `cmd:"" help:"Make a service key and print its npub."`
	Vantages  vantagesCmd `cmd:"" help:"Invite, list and revoke the vantages of a running process."`
	RelaysCmd relaysCmd   `cmd:"" name:"relays" help:"List the relays of a running process, and add, exclude, pause or check some."`
	ConfigCmd configCmd   `cmd:"" name:"config" help:"Check or print the configuration."`
	Migrate   migrateCmd  `cmd:"" help:"Bring the database's schema up to date."`
	Backup    backupCmd   `cmd:"" help:"Write key and history into one file, while a core runs or not."`
	Restore   restoreCmd  `cmd:"" help:"Put key and history of a backup in place; what was there is kept beside."`
	Health    healthCmd   `cmd:"" help:"Ask a running process whether it is ready."`
	Version   versionCmd  `cmd:"" help:"Print the version."`
}

// command is a process and the flags that all commands share.
type command struct {
	process
	flags *commandLine
	log   *slog.Logger
}

// load reads the configuration; its error carries the exit status.
func (c *command) load() (*loaded, error) {
	cfg, err := loadConfig(c.flags.Config, c.environ, c.overrides())
	if err != nil {
		var problems Problems
		errors.As(err, &problems)
		return nil, exitf(exitUsage, "%s\n%s", err, counted(len(problems), "problem in the configuration", "problems in the configuration"))
	}
	// Should the file be gone at a reload, the defaults are not what is meant.
	c.flags.Config = cmp.Or(cfg.file, c.flags.Config)
	return cfg, nil
}

// overrides are the flags that stand above file and environment.
func (c *command) overrides() Overrides {
	return Overrides{DataDir: c.flags.DataDir, Listen: c.flags.Listen, Relays: c.flags.Relays}
}

// run is main without the process: it parses, runs one command and returns the
// exit status.
func run(ctx context.Context, args []string, p process) (status int) {
	flags := &commandLine{}
	parser, err := kong.New(flags,
		kong.Name("pharos"),
		kong.Description("Watches Nostr relays and tells which are online. Exit status: 0 fine, 1 the answer is bad, 2 wrong usage or configuration, 3 could not start."),
		kong.Writers(p.stdout, p.stderr),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		// --help ends the command from inside the parser.
		kong.Exit(func(status int) { panic(earlyExit(status)) }),
	)
	if err != nil {
		return p.end(fmt.Errorf("build the command line: %w", err))
	}
	defer func() {
		switch e := recover().(type) {
		case nil:
		case earlyExit:
			status = int(e)
		default:
			panic(e)
		}
	}()
	parsed, err := parser.Parse(args)
	if err != nil {
		return p.end(exitf(exitUsage, "%s; pharos --help tells more", err))
	}
	c := &command{process: p, flags: flags, log: newLogger(p.stderr, flags.LogLevel, flags.LogFormat)}
	parsed.BindTo(ctx, (*context.Context)(nil))
	return p.end(parsed.Run(c))
}

type earlyExit int

// end prints what went wrong and returns the status.
func (p *process) end(err error) int {
	if err == nil {
		return exitFine
	}
	text, status := "", exitStart
	var e *exitError
	if errors.As(err, &e) {
		text, status = err.Error(), e.status
	} else {
		text = sentence(err)
	}
	if text != "" {
		_, _ = fmt.Fprintln(p.stderr, "pharos: "+strings.TrimSpace(redact(text)))
	}
	return status
}

func newLogger(w io.Writer, level, format string) *slog.Logger {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		l = slog.LevelInfo
	}
	if format == "json" {
		return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: l}))
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: l}))
}

// counted is "1 problem" or "3 problems".
func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
