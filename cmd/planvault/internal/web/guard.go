package web

import (
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/planvault/azblob/cmd/planvault/internal/human"
)

// policy is the Content-Security-Policy of the pages but for reports, which have their own.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// guard lets only GET and HEAD through, and only from browsers that were told one of the server's own names. It
// sets the headers that all answers have.
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		switch {
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			h.Set("Allow", "GET, HEAD")
			http.Error(w, "this server only reads: use GET or HEAD", http.StatusMethodNotAllowed)
		case !s.answersTo(r.Host):
			http.Error(w, "this server does not answer to the name "+human.Line(r.Host, 100)+": use its address, or allow the name with --host", http.StatusMisdirectedRequest)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// answersTo reports whether a Host header has one of the server's names. A page of another site whose name was
// made to resolve to this machine carries that name.
func (s *Server) answersTo(host string) bool {
	if s.o.Hosts == nil {
		return true
	}
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.Trim(host, "[]"), ".")
	return slices.ContainsFunc(s.o.Hosts, func(name string) bool { return strings.EqualFold(name, host) })
}

// LoopbackHosts are the names of the machine itself, for [Options].Hosts of a server that listens on loopback.
func LoopbackHosts() []string { return []string{"localhost", "127.0.0.1", "::1"} }
