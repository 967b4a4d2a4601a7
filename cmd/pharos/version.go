package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// version is set by the linker: -X main.version=v1.2.3. Otherwise the module's
// version or the commit says what this is.
var version = ""

// versionText is this program's version, never empty.
func versionText() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "dev"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			return "dev-" + s.Value[:12]
		}
	}
	return "dev"
}

// userAgent is what relays see of us (probe.md, upgrade).
func (c *Config) userAgent() string {
	if c.Probe.UserAgent != "" {
		return c.Probe.UserAgent
	}
	ua := "pharos/" + versionText()
	if c.Contact != "" {
		ua += " (+" + c.Contact + ")"
	}
	return ua
}

type versionCmd struct{}

// Run prints version, Go version and platform.
func (versionCmd) Run(c *command) error {
	_, err := fmt.Fprintf(c.stdout, "pharos %s %s %s/%s\n", versionText(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}
