package blob

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/efforttest"
)

// TestQuestionsAboutTheAccount asks all of them, and counts each as one request of the class other, with its name.
func TestQuestionsAboutTheAccount(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		info, err := w.AccountInfo(t.Context())
		if err != nil || info.Kind != "StorageV2" || info.SKU != "Standard_LRS" || info.Hierarchical == nil || *info.Hierarchical {
			t.Errorf("%+v, %v", info, err)
		}
		if days, told, err := w.SoftDelete(t.Context()); err != nil || !told || days != 7 {
			t.Errorf("%d days, %t, %v", days, told, err)
		}
		w.server.Put("box", ref.Name, nil, nil)
		if id, err := w.VersionID(t.Context(), ref); err != nil || id != "" {
			t.Errorf("version %q, %v", id, err)
		}
		for i, want := range []string{"get account info", "get service properties", "head"} {
			if e := w.requests[i]; e.Op != want || e.Class != ClassOther {
				t.Errorf("request %d is %+v", i, e)
			}
		}
		_, err = w.VersionID(t.Context(), Ref{"box", "absent"})
		wantError(t, "an absent blob", err, Absent, false)
		w.server.Inject(emulator.On().Times(1).Do(emulator.Answer(404, "ResourceNotFound")))
		_, err = w.AccountInfo(t.Context())
		wantError(t, "account info as of 2024", err, Refused, false)
		w.server.Inject(emulator.On().Do(emulator.Answer(403, "AuthorizationPermissionMismatch")))
		_, err = w.AccountInfo(t.Context())
		wantError(t, "account info", err, Refused, false)
		_, _, err = w.SoftDelete(t.Context())
		wantError(t, "soft delete", err, Refused, false)
	}, emulator.Options{SoftDelete: true})
}

// TestStrangeAnswersAboutTheAccount gets answers that lack what was asked for, or are too large or no XML.
func TestStrangeAnswersAboutTheAccount(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	for body, ok := range map[string]bool{
		"<StorageServiceProperties/>": true,
		"<StorageServiceProperties><DeleteRetentionPolicy><Days>9</Days></DeleteRetentionPolicy></StorageServiceProperties>": true,
		"log in": false,
		"<StorageServiceProperties>" + strings.Repeat(" ", 2<<20) + "</StorageServiceProperties>":                                                   false,
		"<StorageServiceProperties><DeleteRetentionPolicy><Enabled>true</Enabled><Days>x</Days></DeleteRetentionPolicy></StorageServiceProperties>": false,
	} {
		c := newWorld(t, emulator.New(emulator.Options{})).over(t, func(req *http.Request, next sender) (*http.Response, error) {
			resp, err := next(req)
			resp.Body, resp.ContentLength = io.NopCloser(strings.NewReader(body)), -1
			return resp, err
		})
		if _, told, err := c.SoftDelete(Once(t.Context())); told || (err == nil) != ok || err != nil && !Is(err, Unreachable) {
			t.Errorf("%.99s: %t, %v", body, told, err)
		}
	}
}
