package web

import (
	"bytes"
	"net/http"
	"time"

	"github.com/planvault/azblob/cmd/planvault/internal/report"
)

// static serves the styles and scripts.
func (s *Server) static(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("file")
	body, err := files.ReadFile("static/" + name)
	if err != nil {
		s.noPage(w, r)
		return
	}
	if name == "style.css" {
		body = append([]byte(report.Style()), body...)
	}
	http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(body))
}
