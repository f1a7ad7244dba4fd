package main

import (
	"context"
	"fmt"

	"github.com/planvault/azblob/internal/firsthour"
)

// firstHour tries what only a real account can settle. What differs is reported, and fails nothing: it is for the
// later steps to show what the vault makes of it.
func firstHour(ctx context.Context, s *stage) error {
	c := s.probe
	c.Transport, c.Prefix, c.Wait = s.transport, s.cfg.prefix+"-h", s.wait
	return firsthour.Run(ctx, c, func(f firsthour.Finding) error {
		a := act{Name: fmt.Sprintf("%d %s: %s", f.Number, f.Verdict, f.Tried), Requests: f.Requests, Finding: &f}
		if f.Verdict != firsthour.AsExpected {
			a.Name += ": " + f.Summary(true)
		}
		s.sum.Requests += a.Requests
		s.sum.Acts = append(s.sum.Acts, a)
		s.out.act(a)
		return nil
	})
}
