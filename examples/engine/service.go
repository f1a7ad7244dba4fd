package main

import (
	"io"
	"net"
	"net/http"
	"os"
	"path"
	"time"
)

// service is the service that the built-in plan releases: regions that each run a version. It keeps them in
// files, so it survives the process as a real service would, and all processes see the same.
type service struct {
	root *os.Root
}

func (s service) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.routes().ServeHTTP(w, r) }

func (s service) routes() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	mux.HandleFunc("GET /regions/{name...}", func(w http.ResponseWriter, r *http.Request) {
		version, err := s.root.ReadFile(r.PathValue("name"))
		if err != nil {
			http.Error(w, "no such region", http.StatusNotFound)
			return
		}
		_, _ = w.Write(version)
	})
	mux.HandleFunc("PUT /regions/{name...}", func(w http.ResponseWriter, r *http.Request) {
		version, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<10))
		if err == nil {
			err = s.root.MkdirAll(path.Dir(r.PathValue("name")), 0o755)
		}
		if err == nil {
			err = s.root.WriteFile(r.PathValue("name"), version, 0o644) // a repetition does no harm
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	return mux
}

// listen serves the service on a loopback port.
func (s service) listen() (url string, closeListener func() error, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	server := &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = server.Serve(l) }()
	return "http://" + l.Addr().String(), server.Close, nil
}
