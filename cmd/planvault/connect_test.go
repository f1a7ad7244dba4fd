package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// TestResolve checks where a connection comes from.
func TestResolve(t *testing.T) {
	const profiles = `{
		"default": {"endpoint": "https://default", "prefix": "default"},
		"prod":    {"connectionString": "prod", "prefix": "prod", "serviceVersion": "2021-12-02"},
		"account": {"endpoint": "https://account"}
	}`
	path := t.TempDir() + "/profiles.json"
	must(t, os.WriteFile(path, []byte(profiles), 0o600))
	env := func(pairs ...string) map[string]string {
		m := map[string]string{"PLANVAULT_PROFILES": path}
		for _, p := range pairs {
			name, value, _ := strings.Cut(p, "=")
			m[name] = value
		}
		return m
	}
	flags := connection{Endpoint: "https://flag", Prefix: "flag"}
	prod := connection{ConnectionString: "prod", Prefix: "prod", ServiceVersion: "2021-12-02"}
	for name, c := range map[string]struct {
		flags connection
		env   map[string]string
		want  connection
		err   string
	}{
		"default":                 {connection{}, env(), connection{Endpoint: "https://default", Prefix: "default"}, ""},
		"flags":                   {flags, env("PLANVAULT_PREFIX=env"), flags, ""},
		"flag of the account":     {connection{ConnectionString: "x"}, env(), connection{ConnectionString: "x", Prefix: "default"}, ""},
		"profile":                 {connection{profile: "prod"}, env("PLANVAULT_ENDPOINT=https://env"), prod, ""},
		"profile and flag":        {connection{profile: "prod", Prefix: "flag"}, env(), connection{ConnectionString: "prod", Prefix: "flag", ServiceVersion: "2021-12-02"}, ""},
		"profile of environment":  {connection{}, env("PLANVAULT_PROFILE=prod"), prod, ""},
		"version of the flags":    {connection{profile: "prod", ServiceVersion: "2019-07-07"}, env(), connection{ConnectionString: "prod", Prefix: "prod", ServiceVersion: "2019-07-07"}, ""},
		"version of environment":  {connection{}, env("PLANVAULT_SERVICE_VERSION=2020-10-02"), connection{Endpoint: "https://default", Prefix: "default", ServiceVersion: "2020-10-02"}, ""},
		"version of a second":     {connection{kind: "to-", Endpoint: "x", Prefix: "p"}, env("PLANVAULT_TO_SERVICE_VERSION=2020-10-02", "PLANVAULT_SERVICE_VERSION=x"), connection{Endpoint: "x", Prefix: "p", ServiceVersion: "2020-10-02"}, ""},
		"incomplete profile":      {connection{profile: "account"}, env("PLANVAULT_PREFIX=env"), connection{Endpoint: "https://account", Prefix: "env"}, ""},
		"environment":             {connection{}, env("PLANVAULT_ENDPOINT=https://env", "PLANVAULT_PREFIX=env"), connection{Endpoint: "https://env", Prefix: "env"}, ""},
		"environment of the CLI":  {connection{}, env("AZURE_STORAGE_CONNECTION_STRING=az"), connection{ConnectionString: "az", Prefix: "default"}, ""},
		"no profile of the name":  {connection{profile: "nobody"}, env(), connection{}, `no profile "nobody"`},
		"no profiles needed":      {flags, env("PLANVAULT_PROFILES=" + t.TempDir()), flags, ""},
		"profiles can't be read":  {connection{}, env("PLANVAULT_PROFILES=" + t.TempDir()), connection{}, "read the profiles"},
		"nothing":                 {connection{}, env("PLANVAULT_PROFILES=none"), connection{}, "no account: give --endpoint"},
		"no prefix":               {connection{Endpoint: "x"}, env("PLANVAULT_PROFILES=none"), connection{}, "no vault: give --prefix"},
		"both":                    {connection{Endpoint: "x", ConnectionString: "y", Prefix: "z"}, env(), connection{}, "exclude each other"},
		"second has no default":   {connection{kind: "to-"}, env("PLANVAULT_ENDPOINT=https://env"), connection{}, "no account: give --to-endpoint"},
		"environment of a second": {connection{kind: "to-", Prefix: "p"}, env("PLANVAULT_TO_ENDPOINT=https://to"), connection{Endpoint: "https://to", Prefix: "p"}, ""},
		"login of the account":    {connection{Endpoint: "https://a.blob.core.windows.net", Prefix: "p"}, env("PLANVAULT_CONNECTION_STRING=AccountName=a;AccountKey=x"), connection{ConnectionString: "AccountName=a;AccountKey=x", Prefix: "p"}, ""},
		"login of another":        {flags, env("PLANVAULT_CONNECTION_STRING=AccountName=a;AccountKey=x"), flags, ""},
		"profile of a second":     {connection{kind: "to-", profile: "prod"}, env("PLANVAULT_PROFILE=default"), prod, ""},
	} {
		a := newApp(process{getenv: func(name string) string { return c.env[name] }, stderr: io.Discard})
		got, err := a.resolve(c.flags)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		c.want.kind, c.want.profile = c.flags.kind, c.flags.profile
		if err != nil || got != c.want {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// TestPublicFlags pastes the flags of a vault where its profiles and environment are.
func TestPublicFlags(t *testing.T) {
	path := t.TempDir() + "/profiles.json"
	must(t, os.WriteFile(path, []byte(`{"default": {"connectionString": "AccountName=d;AccountKey=secret", "prefix": "d"}, "it's": {"endpoint": "https://e?sig=secret"}}`), 0o600))
	for want, c := range map[string]struct {
		flags connection
		env   map[string]string
	}{
		"--profile default --prefix d":    {},
		"--profile it's --prefix e":       {flags: connection{profile: "it's", Prefix: "e"}},
		"--endpoint https://f --prefix f": {env: map[string]string{"PLANVAULT_ENDPOINT": "https://f/?sig=secret", "PLANVAULT_PREFIX": "f"}},
		"--endpoint https://g.blob.core.windows.net --prefix d --service-version 2021-12-02": {env: map[string]string{"AZURE_STORAGE_CONNECTION_STRING": "AccountName=g;AccountKey=secret", "PLANVAULT_SERVICE_VERSION": "2021-12-02"}},
		"--connection-string UseDevelopmentStorage=true --prefix h":                          {flags: connection{ConnectionString: "UseDevelopmentStorage=true", Prefix: "h"}},
		"--endpoint https://i --prefix i":                                                    {flags: connection{Endpoint: "https://i", Prefix: "i"}},
	} {
		getenv := func(name string) string {
			if name == "PLANVAULT_PROFILES" {
				return path
			}
			return c.env[name]
		}
		a := newApp(process{getenv: getenv, stderr: io.Discard})
		a.connection = c.flags
		where, err := a.resolve(a.connection)
		must(t, err)
		flags := a.public(where)
		if got := strings.Join(flags, " "); got != want {
			t.Errorf("%q, not %q", got, want)
		}
		var pasted connection
		set := pflag.NewFlagSet("", pflag.ContinueOnError)
		pasted.addFlags(set, "")
		must(t, set.Parse(flags))
		if again, err := a.resolve(pasted); err != nil || again.Endpoint != where.Endpoint || again.ConnectionString != where.ConnectionString || again.Prefix != where.Prefix {
			t.Errorf("%s leads to %+v, %v", want, again, err)
		}
	}
}

// TestErrorsShowNoSecrets gives secrets where they don't belong.
func TestErrorsShowNoSecrets(t *testing.T) {
	const secret = "c2VjcmV0c2VjcmV0"
	s := newStage(t)
	for _, args := range [][]string{
		{"list", "--endpoint", "https://account.blob.core.windows.net/container/x?sv=1&sig=" + secret},
		{"list", "--endpoint", "https://account.blob.core.windows.net:port?sig=" + secret},
		{"list", "--endpoint", "://?sig=" + secret},
		{"list", "--connection-string", "AccountName=a;AccountKey=" + secret + ";BlobEndpoint=://"},
		{"list", "--connection-string", "AccountName=a;AccountKey=" + secret + "%%%"},
		{"list", "--connection-string", "SharedAccessSignature=sv=1&sig=" + secret},
		{"AccountName=a;AccountKey=" + secret},
		{"list", "https://account.blob.core.windows.net/?sig=" + secret},
		{"list", "--cost", "--endpoint", "https://127.0.0.1:1/?sv=1&sig=" + secret, "--connection-string", "AccountKey=" + secret},
	} {
		if r := s.run(t.Context(), args...); r.code != exitUsage || r.stderr == "" || strings.Contains(r.stderr+r.stdout, secret) {
			t.Errorf("%q: %+v", args, r)
		}
	}
}

func TestPlaces(t *testing.T) {
	for want, c := range map[string]connection{
		"https://a.blob.core.windows.net, prefix p":         {Endpoint: "https://a.blob.core.windows.net/", Prefix: "p"},
		"https://b.blob.core.windows.net, prefix p":         {Endpoint: "https://b.blob.core.windows.net?sv=1&sig=x", Prefix: "p"},
		"https://c.blob.core.chinacloudapi.cn, prefix p":    {ConnectionString: "AccountName=c;AccountKey=x;EndpointSuffix=core.chinacloudapi.cn", Prefix: "p"},
		"https://d.blob.core.windows.net, prefix p":         {ConnectionString: "AccountName=d;AccountKey=x", Prefix: "p"},
		"https://c.blob.core.windows.net, prefix p":         {ConnectionString: "BlobEndpoint=https://c.blob.core.windows.net/?sv=1&sig=x", Prefix: "p"},
		"http://127.0.0.1:10000/devstoreaccount1, prefix p": {ConnectionString: "BlobEndpoint=http://127.0.0.1:10000/devstoreaccount1;AccountKey=x", Prefix: "p"},
		"the emulator on this machine, prefix p":            {ConnectionString: "UseDevelopmentStorage=true", Prefix: "p"},
	} {
		if got := c.String(); got != want {
			t.Errorf("%q, not %q", got, want)
		}
	}
}

// TestProfilesAreSecret checks who can read the file, and that damage in it does not keep flags from working.
func TestProfilesAreSecret(t *testing.T) {
	s := newStage(t)
	path := filepath.Join(t.TempDir(), "new", "folder", "profiles.json")
	s.env["PLANVAULT_PROFILES"] = path
	if r := s.run(t.Context(), "profile", "set", "default"); r.code != exitDone {
		t.Fatalf("%+v", r)
	}
	for name, mode := range map[string]os.FileMode{path: 0o600, filepath.Dir(path): 0o700 | os.ModeDir} {
		if info, err := os.Stat(name); err != nil || info.Mode() != mode {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "*")); len(left) != 1 {
		t.Errorf("the folder has %q", left)
	}
	for _, damage := range []string{
		"", "{", "[]", `{"a": {"nosuch": 1}}`, `{"a": 1}`, `{"a":{"prefix":"p"}} {"b":{"prefix":"p"}}`, `{"a":{"prefix":"p"}} }`,
	} {
		must(t, os.WriteFile(path, []byte(damage), 0o600))
		for args, code := range map[string]int{"list --allow-empty": exitDone, "profile list": exitUsage, "profile set a": exitUsage, "list --profile a": exitUsage} {
			if r := s.run(t.Context(), strings.Fields(args)...); r.code != code {
				t.Errorf("%q: %s: %+v", damage, args, r)
			}
		}
		if text, _ := os.ReadFile(path); string(text) != damage {
			t.Errorf("%q was replaced by %q", damage, text)
		}
	}
}

// TestProfilesWithoutHome checks that a process without a home needs none.
func TestProfilesWithoutHome(t *testing.T) {
	s := newStage(t)
	for _, home := range []string{"HOME", "XDG_CONFIG_HOME", "AppData"} {
		t.Setenv(home, "")
	}
	delete(s.env, "PLANVAULT_PROFILES")
	for args, code := range map[string]int{"list --allow-empty": exitDone, "profile list": exitDone, "profile set a": exitFailed, "list --profile a": exitUsage} {
		if r := s.run(t.Context(), strings.Fields(args)...); r.code != code {
			t.Errorf("%s: %+v", args, r)
		}
	}
}
