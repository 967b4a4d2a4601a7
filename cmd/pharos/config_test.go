package main

import (
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pharos-nostr/pharos/monitor"
)

// problemsOf loads one file and returns everything that is wrong with it.
func problemsOf(t *testing.T, file string, environ ...string) Problems {
	t.Helper()
	_, err := loadConfig(file, environ, Overrides{})
	if err == nil {
		return nil
	}
	var problems Problems
	if !errors.As(err, &problems) {
		t.Fatalf("the error is a %T: %v", err, err)
	}
	return problems
}

var wantLine = regexp.MustCompile(`(?m)^# want: (\d+) (\S*): (.*)$`)

// Each file breaks one rule and names, in comments of its own, every problem
// that it has: line, key and a part of the text.
func TestBadConfigurations(t *testing.T) {
	files, err := filepath.Glob("testdata/config/bad/*.yaml")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			wanted := wantLine.FindAllStringSubmatch(string(text), -1)
			got := problemsOf(t, file)
			for _, w := range wanted {
				line, _ := strconv.Atoi(w[1])
				found := false
				for i, p := range got {
					if (p.Line == line || line == 0) && p.Key == w[2] && strings.Contains(p.Text, w[3]) && p.Source == file {
						got, found = append(got[:i:i], got[i+1:]...), true
						break
					}
				}
				if !found {
					t.Errorf("not reported: line %d, %s: %s", line, w[2], w[3])
				}
			}
			for _, p := range got {
				t.Errorf("reported besides: %s", p)
			}
		})
	}
}

var update = flag.Bool("update", false, "write the golden files anew")

// What an operator reads about each of the bad files, to the letter.
func TestBadConfigurationsAsPrinted(t *testing.T) {
	const golden = "testdata/config/bad.golden"
	files, err := filepath.Glob("testdata/config/bad/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, file := range files {
		got := pharos(t, "", nil, "--config", file, "config", "check")
		fmt.Fprintf(&b, "$ pharos --config %s config check\n%s%sexit status %d\n\n", file, got.stdout, got.stderr, got.status)
		if got.status != exitUsage || got.stdout != "" {
			t.Errorf("%s: %+v", file, got)
		}
	}
	if *update {
		if err := os.WriteFile(golden, []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), b.String()); diff != "" {
		t.Errorf("printed (-want +got):\n%s", diff)
	}
}

// There is a bad file for every key of the schema.
func TestEveryKeyHasABadFile(t *testing.T) {
	files, err := filepath.Glob("testdata/config/bad/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]bool{}
	index := regexp.MustCompile(`\[\d+\]`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range wantLine.FindAllStringSubmatch(string(text), -1) {
			named[index.ReplaceAllString(w[2], "")] = true
		}
	}
	keys := 0
	for _, s := range []struct {
		path   string
		schema any
	}{{"", Config{}}, {"vantages", Vantage{}}, {"alerts.webhooks", Webhook{}}} {
		leaves(reflect.ValueOf(s.schema), s.path, func(key string, _ reflect.Value) {
			if keys++; !named[key] {
				t.Errorf("no file in testdata/config/bad has a bad value of %s", key)
			}
		})
	}
	if keys < 90 {
		t.Errorf("only %d keys were looked at", keys)
	}
}

func TestGoodConfigurations(t *testing.T) {
	files, err := filepath.Glob("testdata/config/good/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		if got := problemsOf(t, file); got != nil {
			t.Errorf("%s: %v", file, got)
		}
	}
	l, err := loadConfig("testdata/config/good/anchors.yaml", nil, Overrides{})
	if err != nil {
		t.Fatal(err)
	}
	if l.SelfCheck.Interval.D() != 30*time.Second || l.SelfCheck.Canaries.Default || len(l.SelfCheck.Canaries.List) != 0 {
		t.Errorf("self_check is %+v", l.SelfCheck)
	}
	if l.Retention.Raw.D() != 36*time.Hour || len(l.Vantages) != 2 || l.Vantages[1].Group != "two" {
		t.Errorf("retention.raw is %v, vantages are %+v", l.Retention.Raw, l.Vantages)
	}
}

func TestProblemsHideSecrets(t *testing.T) {
	for _, p := range problemsOf(t, "testdata/config/bad/secrets_stay_hidden.yaml") {
		for _, secret := range []string{"hunter2", "nsec1vl0"} {
			if strings.Contains(p.String(), secret) {
				t.Errorf("%q is shown: %s", secret, p)
			}
		}
	}
	for _, p := range problemsOf(t, "testdata/config/bad/relays.yaml") {
		if strings.Contains(p.Text, "secret") {
			t.Errorf("the text repeats a secret: %s", p.Text)
		}
	}
}

func TestProblemText(t *testing.T) {
	got := problemsOf(t, "testdata/config/bad/listen.yaml")
	want := `testdata/config/bad/listen.yaml:1:1: listen: is "localhost": write host:port, such as 127.0.0.1:7766 or [::1]:7766
     1 | listen: localhost`
	if got.Error() != want {
		t.Errorf("got\n%s\nwant\n%s", got.Error(), want)
	}
}

// The numbers are config.md's; what the domain has defaults of its own for
// must not differ from them.
func TestDefault(t *testing.T) {
	c := Default()
	if got := c.Validate(); got != nil {
		t.Errorf("the default is wrong: %v", got)
	}
	if got := laterFeatures(&c); got != nil {
		t.Errorf("the default asks for what is not there: %v", got)
	}
	if diff := cmp.Diff(monitor.DefaultLiveness(), c.livenessRules()); diff != "" {
		t.Errorf("liveness differs from the domain's defaults (-domain +configuration):\n%s", diff)
	}
	if diff := cmp.Diff(monitor.DefaultFreshness(), c.freshness()); diff != "" {
		t.Errorf("live differs from the domain's defaults (-domain +configuration):\n%s", diff)
	}
	if diff := cmp.Diff(monitor.DefaultCadence(), c.cadence()); diff != "" {
		t.Errorf("the cadence differs from the domain's defaults (-domain +configuration):\n%s", diff)
	}
}

// The example holds every key, with its default.
func TestExample(t *testing.T) {
	const file = "../../deploy/pharos.example.yaml"
	l, err := loadConfig(file, nil, Overrides{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Default(), normal(l.Config), addresses); diff != "" {
		t.Errorf("the example differs from the default (-default +example):\n%s", diff)
	}
	leaves(reflect.ValueOf(Default()), "", func(key string, _ reflect.Value) {
		if _, ok := l.origins[key]; !ok {
			t.Errorf("the example lacks %s", key)
		}
	})
	for _, key := range []string{"name", "group", "geohash", "proxy", "source_address"} {
		if _, ok := l.origins["vantages[0]."+key]; !ok {
			t.Errorf("the example lacks vantages[].%s", key)
		}
	}
}

// addresses compares them as == does.
var addresses = cmp.Options{
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
}

// normal writes empty lists as the default does.
func normal(c Config) Config {
	leaves(reflect.ValueOf(&c).Elem(), "", func(_ string, v reflect.Value) {
		if v.Kind() == reflect.Slice && v.Len() == 0 {
			v.SetZero()
		}
	})
	return c
}

func TestEnvironmentOverFileUnderFlags(t *testing.T) {
	listen := "127.0.0.1:3"
	l, err := loadConfig("testdata/config/good/minimal.yaml", []string{
		"PHAROS_PROBE_INTERVAL=1m", "PHAROS_LISTEN=127.0.0.1:2", "PHAROS_NAME=Environment",
		"PHAROS_PROBE_ALLOW_NETWORKS=127.0.0.0/8,::1/128", "PHAROS_RELAYS=wss://a.example.com, ws://b.example.com",
		"PHAROS_SELF_CHECK_CANARIES=[]", "PHAROS_VANTAGES=[{name: one}, {name: two}]", "PHAROS_LIVE_MIN_COUNT=5",
		"PHAROS_DATABASE_URL=postgres://u:p@h/d", "PHAROS_DISCOVERY_ENABLED=false",
		"PHAROS_SERVICE_HOST=10.0.0.1", "PHAROS_PORT_7766_TCP=tcp://10.0.0.1:7766", "PHAROS_LOG_LEVEL=debug",
		"HOME=/nowhere",
	}, Overrides{Listen: &listen})
	if err != nil {
		t.Fatal(err)
	}
	if l.Probe.Interval.D() != time.Minute || l.Listen != listen || l.Name != "Environment" || l.Live.MinCount != 5 || l.Discovery.Enabled {
		t.Errorf("got %v, %q, %q, %d, %v", l.Probe.Interval, l.Listen, l.Name, l.Live.MinCount, l.Discovery.Enabled)
	}
	if len(l.Probe.AllowNetworks) != 2 || len(l.Relays) != 2 || l.Relays[1] != "ws://b.example.com" || len(l.Vantages) != 2 || l.SelfCheck.Canaries.Default {
		t.Errorf("lists are %v, %v, %v, %+v", l.Probe.AllowNetworks, l.Relays, l.Vantages, l.SelfCheck.Canaries)
	}
	if l.Database.URL.Reveal() != "postgres://u:p@h/d" {
		t.Errorf("database.url is %v", l.Database.URL)
	}
}

func TestBadEnvironment(t *testing.T) {
	got := problemsOf(t, "testdata/config/good/minimal.yaml",
		"PHAROS_PROBE_INTERVALL=1m", "PHAROS_LIVE_MIN_COUNT=few", "PHAROS_PROBE_ALLOW_NETWORKS=here", "PHAROS_LISTEN=nowhere",
		"PHAROS_DATABASE_MAX_CONNS=0")
	var lines []string
	for _, p := range got {
		lines = append(lines, p.String())
	}
	want := []string{
		`PHAROS_LIVE_MIN_COUNT: live.min_count: "few" is no whole number that fits`,
		`PHAROS_PROBE_ALLOW_NETWORKS: probe.allow_networks[0]: "here" is no address range: write one such as 10.0.0.0/8 or fd00::/8, or a single address`,
		`environment: PHAROS_PROBE_INTERVALL: is an unknown key; did you mean PHAROS_PROBE_INTERVAL?`,
		`PHAROS_LISTEN: listen: is "nowhere": write host:port, such as 127.0.0.1:7766 or [::1]:7766`,
		`PHAROS_DATABASE_MAX_CONNS: database.max_conns: is 0: it must be between 4 and 1000`,
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}

func TestWhichFile(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	write := func(name, listen string) {
		if err := os.WriteFile(name, []byte("listen: "+listen+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	load := func(flag string, environ ...string) string {
		l, err := loadConfig(flag, environ, Overrides{})
		if err != nil {
			t.Fatal(err)
		}
		return l.Listen
	}
	if got := load(""); got != Default().Listen {
		t.Errorf("without any file listen is %s", got)
	}
	write("pharos.yaml", "127.0.0.1:1")
	write("env.yaml", "127.0.0.1:2")
	write("flag.yaml", "127.0.0.1:3")
	if got := load(""); got != "127.0.0.1:1" {
		t.Errorf("./pharos.yaml was not read: %s", got)
	}
	if got := load("", "PHAROS_CONFIG=env.yaml"); got != "127.0.0.1:2" {
		t.Errorf("$PHAROS_CONFIG was not read: %s", got)
	}
	if got := load("flag.yaml", "PHAROS_CONFIG=env.yaml"); got != "127.0.0.1:3" {
		t.Errorf("--config was not read: %s", got)
	}
	got := problemsOf(t, "missing.yaml")
	if len(got) != 1 || got.Error() != "missing.yaml: cannot be read: there is no such file" {
		t.Errorf("a missing file: %v", got)
	}
}

func TestDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"5m": 5 * time.Minute, "0": 0, "0s": 0, "2d": 48 * time.Hour, "1d12h": 36 * time.Hour, "1.5d": 36 * time.Hour, "1m30s": 90 * time.Second,
	} {
		var d Duration
		if err := d.UnmarshalText([]byte(text)); err != nil || d.D() != want {
			t.Errorf("%q is %v, %v", text, d.D(), err)
		}
		var back Duration
		if err := back.UnmarshalText([]byte(d.String())); err != nil || back != d {
			t.Errorf("%v printed is %q, read back %v, %v", d.D(), d, back, err)
		}
	}
	for _, text := range []string{"", "5", "-1d", "d", "1d5", "5 m", "1h1d", "1e999d", "five"} {
		var d Duration
		if err := d.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is read as %v", text, d)
		}
	}
}

func TestPrintReadsBack(t *testing.T) {
	l, err := loadConfig("testdata/config/good/anchors.yaml", []string{
		"PHAROS_DATABASE_URL=postgres://u:hunter2@h/d", "PHAROS_CONTACT=a: \"b\" #c",
	}, Overrides{})
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := printConfig(&b, &l.Config); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(b.String(), "hunter2") || !strings.Contains(b.String(), `url: "postgres://u:********@h/d"`) {
		t.Errorf("the password is not masked:\n%s", b.String())
	}
	file := filepath.Join(t.TempDir(), "printed.yaml")
	if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	back, err := loadConfig(file, nil, Overrides{})
	if err != nil {
		t.Fatal(err)
	}
	want := normal(l.Config)
	want.Database.URL = DSN(want.Database.URL.String())
	if diff := cmp.Diff(want, normal(back.Config), addresses); diff != "" {
		t.Errorf("read back it differs (-loaded +printed):\n%s", diff)
	}
}

// Whatever the schema calls a secret is masked, wherever it stands.
func TestPrintMasksEverySecret(t *testing.T) {
	c := Default()
	c.Alerts.Webhooks = make([]Webhook, 1)
	filled := 0
	var fill func(v reflect.Value)
	fill = func(v reflect.Value) {
		switch {
		case isSecret(v.Type()):
			v.SetString("SEKRIT")
			filled++
		case v.Kind() == reflect.Slice:
			for i := range v.Len() {
				fill(v.Index(i))
			}
		case v.Kind() == reflect.Struct && !isText(v) && v.Type() != reflect.TypeFor[Builtin]():
			for i := range v.NumField() {
				fill(v.Field(i))
			}
		}
	}
	fill(reflect.ValueOf(&c).Elem())
	var b strings.Builder
	if err := printConfig(&b, &c); err != nil {
		t.Fatal(err)
	}
	if filled < 7 || strings.Contains(b.String(), "SEKRIT") || strings.Count(b.String(), mask) != filled {
		t.Errorf("%d secrets, printed\n%s", filled, b.String())
	}
}

func TestDSNIsMasked(t *testing.T) {
	for in, want := range map[string]string{
		"":                               "",
		"postgres://pharos:hunter2@db/x": "postgres://pharos:********@db/x",
		"postgres://db/x":                "postgres://db/x",
		"postgres://pharos@[::1]:5432/x?sslmode=require":   "postgres://pharos@[::1]:5432/x?sslmode=require",
		"postgres:///x?host=/run/postgresql":               "postgres:///x?host=/run/postgresql",
		"postgres://db/x?password=hunter2&sslmode=disable": "postgres://db/x?sslmode=disable&********",
		"postgres://u@db/x?password=pa&SEKRIT":             "postgres://u@db/x?********",
		"socks5h://u:SEKRIT@127.0.0.1:9050":                "socks5h://u:********@127.0.0.1:9050",
		"postgres://u:pa@SEKRIT@127.0.0.1:9/db":            "postgres://u:********@127.0.0.1:9/db",
		"postgres://u:SE'KRIT@127.0.0.1:9/db":              "postgres://u:********@127.0.0.1:9/db",
		"postgres://u:12/SEKRIT@h/db":                      mask,
		"postgres://u:12?SEKRIT@h/db":                      "postgres://u:12?********",
		"postgres://u:12#SEKRIT@h/db":                      mask,
		"postgres://u:12%2FSEKRIT%40h/db":                  mask,
		"postgres://u%3ASEKRIT@h/db":                       mask,
		"postgres://u:SEK%zz@h/db":                         mask,
		"mysql://u:SEKRIT@h/db":                            mask,
		"host=db password=hunter2 user=pharos":             mask,
		"host=/x password='SEKRIT":                         mask,
		"SEKRIT":                                           mask,
	} {
		d := DSN(in)
		text, _ := d.MarshalText()
		for _, got := range []string{d.String(), string(text), d.LogValue().String()} {
			if got != want {
				t.Errorf("%q prints as %q, want %q", in, got, want)
			}
		}
	}
}

func TestRedact(t *testing.T) {
	for in, want := range map[string]string{
		"postgres://pharos:hunter2@db/x":                                   "postgres://pharos:********@db/x",
		"postgres://u:pa@SEKRIT@db/x":                                      "postgres://u:********@db/x",
		"postgres://u:SE'KRIT@db/x":                                        "postgres://u:********@db/x",
		"host=db password=hunter2 user=pharos":                             "host=db password=******** user=pharos",
		"host=db password='hun ter2' user=pharos":                          "host=db password=******** user=pharos",
		"host=db password='hun ter2 user=pharos":                           "host=db password=********",
		"host=db password=hun'ter2 user=pharos":                            "host=db password=******** user=pharos",
		"postgres://db/x?password=hunter2&a=b":                             "postgres://db/x?password=********&a=b",
		"key: {password_file: /etc/pharos/secret}":                         "key: {password_file: /etc/pharos/secret}",
		"/d/admin.token: no such file; password: x":                        "/d/admin.token: no such file; password: ********",
		"password=a /run/db_secret: is empty, b/token: is a pipe: token:y": "password=******** /run/db_secret: is empty, b/token: is a pipe: token:********",
		"https://h/?token: SEKRIT":                                         "https://h/?token: ********",
		"https://h/token:SEKRIT":                                           "https://h/token:********",
	} {
		if got := redact(in); got != want {
			t.Errorf("%q becomes %q, want %q", in, got, want)
		}
	}
}

// What stands in the place of a secret is never shown, however it is written
// and whatever else is wrong.
func TestExcerptsHideSecrets(t *testing.T) {
	for name, text := range map[string]string{
		"webhook":          "alerts: {webhooks: [{url: \"https://hooks.example/SEKRIT\"}]}\n",
		"webhook, block":   "alerts:\n  webhooks:\n    - url: https://hooks.example/SEKRIT\n      relays: [1]\n",
		"no webhook":       "alerts:\n  webhooks: https://hooks.example/SEKRIT\n",
		"webhook, text":    "alerts:\n  webhooks: [https://hooks.example/SEKRIT]\n",
		"heartbeat":        "alerts:\n  heartbeat_url: https://beat.example/SEKRIT\n",
		"heartbeat, lines": "alerts:\n  heartbeat_url:\n    'https://beat.example/\n    SEKRIT' # so\nname: \"\"\n",
		"heartbeat, block": "alerts:\n  heartbeat_url: >-\n    https://beat.example/\n    SEKRIT\nname: \"\"\n",
		"flow, lines":      "alerts: {heartbeat_url:\n  \"https://beat.example/\n  SEKRIT\", nostr: {enabled: 1}}\n",
		"misspelt":         "alerts:\n  heartbeat: https://beat.example/SEKRIT\n",
		"wrong section":    "alert:\n  heartbeat_url: https://beat.example/SEKRIT\n",
		"no section":       "alerts: https://beat.example/SEKRIT\n",
		"escaped key":      "alerts:\n  \"heartbeat\\u005furl\": https://beat.example/SEKRIT\n",
		"anchor":           "name: &a \"SEKRIT\\n\"\nalerts: {heartbeat_url: *a}\n",
		"repeated":         "database:\n  url: postgres://h/d\n  url: SE'KRIT\n",
		"no value":         "database: {url: [SEKRIT]}\n",
		"no address":       "database:\n  url: 'SEKRIT'\n  max_conns: 0\n",
		"a list":           "database:\n  url:\n    - SEKRIT\n  max_conns: 0\n",
		"no YAML":          "database:\n  url: postgres://u:\n  x: y: SEKRIT\n",
		"no YAML, lines":   "database:\n  url:\n    SEKRIT: x: y\n",
		"second document":  "name: a\n---\nSEKRIT\n",
		"proxy":            "vantages: [{name: a, proxy: 'socks4://u:SEKRIT@h:1'}]\n",
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "pharos.yaml")
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			got := pharos(t, "", nil, "--config", file, "config", "check")
			if got.status != 2 || !strings.Contains(got.stderr, file+":") || strings.Contains(got.stderr+got.stdout, "KRIT") {
				t.Errorf("status %d, stderr\n%s", got.status, got.stderr)
			}
		})
	}
}

func TestExcerptShowsTheRest(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pharos.yaml")
	if err := os.WriteFile(file, []byte("alerts:\n  heartbeat_url: >-\n    SEKRIT\nname: \"\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got := problemsOf(t, file)
	if len(got) != 2 || got[0].Excerpt != "  heartbeat_url: ********" || got[1].Excerpt != `name: ""` {
		t.Errorf("got %v", got)
	}
}

func TestExcerptOfNoYAML(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pharos.yaml")
	if err := os.WriteFile(file, []byte("name: x: y\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := problemsOf(t, file); len(got) != 1 || got[0].Excerpt != "name: x: y" {
		t.Errorf("got %v", got)
	}
}

func TestDatabaseURL(t *testing.T) {
	const key = "database.url"
	for _, url := range []string{
		"postgres://u:SEK%zz@h/db", "postgres://u:SEK/RIT@h:1/db", "postgres://u:12/RIT@h:1/db", "postgres://h/db?sslmode=foo",
		"host=u@h", "host=h password='open", "postgres://h/db?pool_max_conns=x", "mysql.example.org",
	} {
		file := filepath.Join(t.TempDir(), "pharos.yaml")
		if err := os.WriteFile(file, []byte("database:\n  url: \""+url+"\"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		got := problemsOf(t, file)
		if len(got) != 1 || got[0].Key != key || got[0].Line != 2 || got[0].Source != file || !strings.Contains(got[0].Text, "is no PostgreSQL address") {
			t.Errorf("%s: %v", url, got)
		}
		if got := pharos(t, "", nil, "--config", file, "config", "check"); got.status != 2 {
			t.Errorf("%s: status %d", url, got.status)
		}
	}
	for _, url := range []string{"postgres://u:p%40w@h:5432/db?sslmode=require", "host=/run user=u password='p w' dbname=d", "postgres:///d?host=/run", "postgres://u:********@h/d"} {
		c := Default()
		c.Database.URL = DSN(url)
		if got := c.Validate(); got != nil {
			t.Errorf("%s: %v", url, got)
		}
	}
}

func TestByteOrderMark(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pharos.yaml")
	if err := os.WriteFile(file, []byte("\ufefflisten: nowhere\nname: \"\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got := problemsOf(t, file)
	if len(got) != 2 || got[0].Key != "listen" || got[0].Line != 1 || got[0].Column != 1 || got[0].Excerpt != "listen: nowhere" || got[1].Line != 2 {
		t.Errorf("got %v", got)
	}
}

// What would keep the parser for minutes is refused before it gets there.
func TestYAMLBounds(t *testing.T) {
	for name, c := range map[string]struct{ text, says string }{
		"lists":    {strings.Repeat("[", 50_000), "is nested more than 100 levels deep"},
		"sections": {"name: x\n" + strings.Repeat("{a: ", 50_000), "is nested more than 100 levels deep"},
		"items":    {strings.Repeat("- ", 50_000), "is nested more than 100 levels deep"},
		"colons":   {strings.Repeat("a: ", 50_000), "goes on here after 20000 words"},
		"keys":     {strings.Repeat("a:\n", 50_000), "goes on here after 20000 words"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "pharos.yaml")
			if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			if got := problemsOf(t, file); len(got) != 1 || !strings.Contains(got[0].Text, c.says) || got[0].Line < 1 {
				t.Errorf("got %.300v", got)
			}
		})
	}
	if got := problemsOf(t, "testdata/config/good/minimal.yaml", "PHAROS_RELAYS="+strings.Repeat("[", 50_000)); len(got) != 1 || !strings.Contains(got[0].Text, "nested") {
		t.Errorf("in the environment: %.300v", got)
	}
	many := "relays: [" + strings.Repeat("wss://relay.example.com, ", 9_000) + "]\n"
	if line, how := outOfBounds(many); line != 0 {
		t.Errorf("9000 relays: %s", how)
	}
	if line, how := outOfBounds("name: \"" + strings.Repeat("[", 200) + "\" # " + strings.Repeat("[", 200)); line != 0 {
		t.Errorf("brackets in a text: %s", how)
	}
}

func TestNotANumber(t *testing.T) {
	for text, says := range map[string]string{
		".nan": `".nan" is not a number`, ".NaN": `".NaN" is not a number`, ".inf": `".inf" is infinite`, "-.inf": `"-.inf" is infinite`, "few": "is a text, not a number",
	} {
		file := filepath.Join(t.TempDir(), "pharos.yaml")
		if err := os.WriteFile(file, []byte("probe: {rate: "+text+"}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := problemsOf(t, file); len(got) != 1 || got[0].Key != "probe.rate" || !strings.Contains(got[0].Text, says) {
			t.Errorf("%s: %v", text, got)
		}
	}
	if got := problemsOf(t, "testdata/config/good/empty.yaml", "PHAROS_PROBE_RATE=nan"); len(got) != 1 || !strings.Contains(got[0].Text, "is not a number") {
		t.Errorf("in the environment: %v", got)
	}
}

// The example marks every key that is refused: beside it, or above it in its
// paragraph.
func TestExampleMarksWhatComesLater(t *testing.T) {
	const file = "../../deploy/pharos.example.yaml"
	l, err := loadConfig(file, nil, Overrides{})
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	for _, x := range later {
		o, ok := l.origins[strings.Replace(x.key, "vantages.", "vantages[0].", 1)]
		if !ok {
			t.Errorf("%s is not there", x.key)
			continue
		}
		paragraph := ""
		for i := o.line - 1; i >= 0 && lines[i] != ""; i-- {
			paragraph += lines[i] + "\n"
		}
		if !strings.Contains(strings.ToLower(paragraph), "later") {
			t.Errorf("%s is not marked as later", x.key)
		}
	}
}
