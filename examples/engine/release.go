package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/planvault/azblob/examples/engine/plugins"
	"github.com/planvault/azblob/workflow"
)

// release is the built-in plan: the release of a small service, from the build to the announcement, in about
// half a minute. This program serves the service.
func release(version string) *workflow.Plan {
	return &workflow.Plan{
		Name:         "release " + version,
		Descr:        "build a service, try it on a canary, roll it out to three regions",
		BypassChecks: &workflow.Checks{Actions: []*workflow.Action{get("released already?", "/regions/asia", version)}},
		PreChecks:    &workflow.Checks{Actions: []*workflow.Action{health("service is healthy"), shell("disk has room", "df -P . | tail -n 1", 0)}},
		ContChecks:   &workflow.Checks{Delay: 2 * time.Second, Actions: []*workflow.Action{health("service stays healthy")}},
		PostChecks: &workflow.Checks{Actions: []*workflow.Action{
			get("eu has it", "/regions/eu", version), get("us has it", "/regions/us", version), get("asia has it", "/regions/asia", version),
		}},
		DeferredChecks: &workflow.Checks{Actions: []*workflow.Action{shell("manifest is there", "test -s manifest.txt", 0)}},
		Blocks:         releaseBlocks(version),
		DeferredActions: &workflow.DeferredActions{Batches: []*workflow.DeferBatch{
			{Name: "announce", When: workflow.OnSuccess, Actions: []*workflow.Action{note("tell everybody", version+" is released")}},
			{Name: "roll back", When: workflow.OnFailure, FailElement: true, Actions: []*workflow.Action{note("page the operator", version+" failed")}},
			{Name: "clean up", When: workflow.Always, Actions: []*workflow.Action{shell("remove leftovers", "sleep 1; rm -f cache binary.txt", 1)}},
		}},
	}
}

// releaseOf is the release of a service of its own, so that several can run at once.
func releaseOf(service, version string) *workflow.Plan {
	p := release(version)
	p.Name = "release " + service + " " + version
	for o := range workflow.Walk(p) {
		a, ok := o.(*workflow.Action)
		if !ok {
			continue
		}
		switch r := a.Req.(type) {
		case plugins.CommandRequest:
			r.Run = fmt.Sprintf("mkdir -p %s && cd %s && { %s; }", service, service, r.Run)
			a.Req = r
		case plugins.FileRequest:
			r.Path = service + "/" + r.Path
			a.Req = r
		case plugins.HTTPRequest:
			r.URL = strings.Replace(r.URL, "/regions/", "/regions/"+service+"/", 1)
			a.Req = r
		}
	}
	return p
}

// releaseBlocks are the blocks of the release.
func releaseBlocks(version string) []*workflow.Block {
	region := func(name string) *workflow.Sequence {
		return &workflow.Sequence{Name: name, Actions: []*workflow.Action{
			pause("drain", 1500*time.Millisecond),
			put("install", "/regions/"+name, version),
			shell("restart", "sleep 1.5; echo "+name+" is up", 0),
			get("probe", "/regions/"+name, version),
		}}
	}
	return []*workflow.Block{
		{
			Name: "build", Concurrency: 2,
			Sequences: []*workflow.Sequence{
				{Name: "binary", Actions: []*workflow.Action{
					shell("compile", "sleep 2; echo "+version+" > binary.txt", 0),
					shell("unit tests", "sleep 2; grep -q . binary.txt", 0),
					write("manifest", "manifest.txt", "version "+version+"\n"),
				}},
				{Name: "documentation", Actions: []*workflow.Action{
					shell("render", "sleep 2.5; echo done", 0),
					note("changelog", "changed in "+version),
				}},
			},
		},
		{
			Name: "canary", EntranceDelay: time.Second, ExitDelay: time.Second,
			PreChecks:  &workflow.Checks{Actions: []*workflow.Action{health("canary is reachable")}},
			PostChecks: &workflow.Checks{Delay: time.Second, Actions: []*workflow.Action{get("canary serves it", "/regions/canary", version)}},
			Sequences: []*workflow.Sequence{{Name: "canary", Actions: []*workflow.Action{
				put("install", "/regions/canary", version),
				// The cold cache fails once, to show a retry.
				shell("warm the cache", "test -e cache || { touch cache; echo the cache is cold; exit 1; }", 2),
				pause("watch", 4*time.Second),
			}}},
		},
		{
			Name: "roll out", Concurrency: 3, ToleratedFailures: 1,
			ContChecks:     &workflow.Checks{Delay: 2 * time.Second, Actions: []*workflow.Action{get("canary stays well", "/regions/canary", version)}},
			DeferredChecks: &workflow.Checks{Actions: []*workflow.Action{health("service is still healthy")}},
			Sequences:      []*workflow.Sequence{region("eu"), region("us"), region("asia")},
		},
		{
			Name: "verify",
			Sequences: []*workflow.Sequence{{Name: "end to end", Actions: []*workflow.Action{
				shell("smoke test", "sleep 2; echo passed", 1),
				pause("soak", 4*time.Second),
				shell("load test", "sleep 4; echo passed", 1),
			}}},
		},
	}
}

func health(name string) *workflow.Action { return get(name, "/health", "ok") }

// newVersion returns a different version each time. Otherwise the bypass checks would find it released.
func newVersion(now time.Time) string { return now.Format("0102.150405") }

func shell(name, run string, retries int) *workflow.Action {
	return &workflow.Action{Name: name, Plugin: "command", Timeout: time.Minute, Retries: retries, Req: plugins.CommandRequest{Run: run}}
}

func get(name, url, contains string) *workflow.Action {
	return &workflow.Action{Name: name, Plugin: "http", Timeout: 10 * time.Second, Req: plugins.HTTPRequest{URL: url, Contains: contains}}
}

func put(name, url, body string) *workflow.Action {
	return &workflow.Action{Name: name, Plugin: "http", Timeout: 10 * time.Second, Retries: 2, Req: plugins.HTTPRequest{Method: "PUT", URL: url, Body: body}}
}

func write(name, path, content string) *workflow.Action {
	return &workflow.Action{Name: name, Plugin: "file", Req: plugins.FileRequest{Path: path, Content: content}}
}

func note(name, text string) *workflow.Action {
	return &workflow.Action{Name: name, Plugin: "file", Req: plugins.FileRequest{Path: "release.log", Content: text, Append: true}}
}

func pause(name string, d time.Duration) *workflow.Action {
	return &workflow.Action{Name: name, Plugin: "sleep", Req: plugins.SleepRequest{For: fmt.Sprint(d)}}
}
