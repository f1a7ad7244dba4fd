package web

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"sync"
	"time"

	"github.com/planvault/azblob/cmd/planvault/report"
)

// static serves the styles and scripts. Browsers keep them and ask whether they have changed.
func (s *Server) static(w http.ResponseWriter, r *http.Request) {
	a, there := assets()[r.PathValue("file")]
	if !there {
		s.noPage(w, r)
		return
	}
	w.Header().Set("Cache-Control", "no-cache")
	w.Header().Set("ETag", a.etag)
	http.ServeContent(w, r, r.PathValue("file"), time.Time{}, bytes.NewReader(a.body))
}

type asset struct {
	body []byte
	etag string
}

// assets returns the files below static, by their names.
var assets = sync.OnceValue(func() map[string]asset {
	entries, err := files.ReadDir("static")
	if err != nil {
		panic(err) // it is embedded
	}
	list := map[string]asset{}
	for _, e := range entries {
		body, err := files.ReadFile("static/" + e.Name())
		if err != nil {
			panic(err)
		}
		if e.Name() == "style.css" {
			body = append([]byte(report.Tokens()), body...)
		}
		sum := sha256.Sum256(body)
		list[e.Name()] = asset{body, `"` + hex.EncodeToString(sum[:8]) + `"`}
	}
	return list
})
