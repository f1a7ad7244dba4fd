package plugins_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/examples/engine/plugins"
	base "github.com/planvault/azblob/plugins"
)

// run runs a plugin as the engine does.
func run[Req, Resp any](plugin func(context.Context, engine.Call, Req) (Resp, error), req any) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := engine.Func("test", plugin).Run(ctx, engine.Call{Action: uuid.New()}, req)
		return err
	}
}

// failure returns the plugin's own error in err.
func failure(err error) base.Error {
	var own *base.Error
	if errors.As(err, &own) {
		return *own
	}
	return base.Error{}
}

// TestBadRequests checks that failures that no retry can cure are Permanent.
func TestBadRequests(t *testing.T) {
	root := folder(t)
	for name, test := range map[string]struct {
		run  func(context.Context) error
		want string
	}{
		"command, none":      {run(plugins.Command{}.Run, nil), `"run" is missing`},
		"command, blank":     {run(plugins.Command{}.Run, plugins.CommandRequest{Run: " "}), `"run" is missing`},
		"http, none":         {run(plugins.HTTP{}.Run, nil), `"url" is missing`},
		"http, no host":      {run(plugins.HTTP{}.Run, plugins.HTTPRequest{URL: "/x"}), "names no host"},
		"http, another kind": {run(plugins.HTTP{}.Run, plugins.HTTPRequest{URL: "ftp://x/"}), "not an http or https URL"},
		"http, no address":   {run(plugins.HTTP{}.Run, plugins.HTTPRequest{URL: "http://x/%zz"}), "invalid URL"},
		"http, a method":     {run(plugins.HTTP{}.Run, plugins.HTTPRequest{URL: "http://x/", Method: "a b"}), "invalid method"},
		"file, none":         {run(plugins.File{Root: root}.Run, nil), `"path" is missing`},
		"file, outside":      {run(plugins.File{Root: root}.Run, plugins.FileRequest{Path: "../x/y"}), "escapes"},
		"sleep, none":        {run(plugins.Sleep{}.Run, nil), `"for" must be`},
		"sleep, backwards":   {run(plugins.Sleep{}.Run, plugins.SleepRequest{For: "-1s"}), `"for" must be`},
	} {
		t.Run(name, func(t *testing.T) {
			err := test.run(t.Context())
			if f := failure(err); !f.Permanent || !strings.Contains(f.Message, test.want) {
				t.Errorf("%v, %+v", err, f)
			}
		})
	}
}

func folder(t *testing.T) *os.Root {
	t.Helper()
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	return root
}

func TestCommand(t *testing.T) {
	dir, action := t.TempDir(), uuid.New()
	for _, test := range []struct {
		run, output string
		code        int
		message     string
	}{
		{"echo one; echo two >&2", "one\ntwo\n", 0, ""},
		{"pwd", dir + "\n", 0, ""},
		{"echo $ACTION_ID", action.String() + "\n", 0, ""},
		{"echo it is broken; exit 3", "it is broken\n", 3, "exit status 3: it is broken"},
		{`printf '\377'`, "\uFFFD", 0, ""},
		{"i=0; while [ $i -lt 4000 ]; do echo 12345; i=$((i+1)); done; echo end", "", 0, ""},
	} {
		t.Run(test.run, func(t *testing.T) {
			resp, err := plugins.Command{Dir: dir}.Run(t.Context(), engine.Call{Action: action}, plugins.CommandRequest{Run: test.run})
			if f := failure(err); f.Code != test.code || !strings.Contains(f.Message, test.message) || (err == nil) != (test.code == 0) {
				t.Errorf("%v", err)
			}
			output := resp.Output
			if test.output != "" && output != test.output {
				t.Errorf("output %q", output)
			}
			if len(output) > 16<<10 || test.output == "" && !strings.HasSuffix(output, "12345\nend\n") {
				t.Errorf("%d bytes are kept, not the end of the output", len(output))
			}
		})
	}
}

func TestHTTP(t *testing.T) {
	action := uuid.New()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.URL.Path == "/teapot" {
			w.WriteHeader(http.StatusTeapot)
		}
		_, _ = io.WriteString(w, r.Method+" "+string(body)+" "+r.Header.Get("Idempotency-Key"))
	}))
	defer server.Close()
	for _, test := range []struct {
		req  plugins.HTTPRequest
		body string
		code int // of the failure
	}{
		{plugins.HTTPRequest{URL: "/"}, "GET  " + action.String(), 0},
		{plugins.HTTPRequest{URL: server.URL + "/x", Method: "PUT", Body: "b"}, "PUT b " + action.String(), 0},
		{plugins.HTTPRequest{URL: "/teapot"}, "GET  " + action.String(), 418},
		{plugins.HTTPRequest{URL: "/teapot", Status: 418}, "GET  " + action.String(), 0},
		{plugins.HTTPRequest{URL: "/", Status: 418}, "GET  " + action.String(), 200},
		{plugins.HTTPRequest{URL: "/", Contains: "GET"}, "GET  " + action.String(), 0},
		{plugins.HTTPRequest{URL: "/", Contains: "nothing of the kind"}, "GET  " + action.String(), 200},
	} {
		resp, err := plugins.HTTP{Base: server.URL}.Run(t.Context(), engine.Call{Action: action}, test.req)
		if resp.Body != test.body || failure(err).Code != test.code || (err == nil) != (test.code == 0) {
			t.Errorf("%+v: %+v, %v", test.req, resp, err)
		}
	}
	server.Close()
	if _, err := (plugins.HTTP{}).Run(t.Context(), engine.Call{Action: action}, plugins.HTTPRequest{URL: server.URL}); err == nil || failure(err).Permanent {
		t.Errorf("no server: %v", err)
	}
}

func TestFile(t *testing.T) {
	root, action := folder(t), uuid.New()
	for _, r := range []plugins.FileRequest{
		{Path: "a/b.txt", Content: "one"},
		{Path: "a/b.txt", Content: "two"},
		{Path: "log", Content: "x", Append: true},
		{Path: "log", Content: "y", Append: true},
	} {
		if _, err := (plugins.File{Root: root}).Run(t.Context(), engine.Call{Action: action}, r); err != nil {
			t.Error(err)
		}
	}
	for name, want := range map[string]string{"a/b.txt": "two", "log": action.String() + " x\n" + action.String() + " y\n"} {
		if got, err := root.ReadFile(name); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if left, err := filepath.Glob(filepath.Join(root.Name(), "a", "*")); err != nil || len(left) != 1 {
		t.Errorf("left over: %q, %v", left, err)
	}
}

func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if _, err := (plugins.Sleep{}).Run(t.Context(), engine.Call{}, plugins.SleepRequest{For: "90s"}); err != nil || time.Since(began) != 90*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := (plugins.Sleep{}).Run(ctx, engine.Call{}, plugins.SleepRequest{For: "90s"}); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}
