package blob

import (
	"net/url"
	"strings"
	"testing"
)

func TestConnectionStringsThatCantBeUsed(t *testing.T) {
	const key = "c2VjcmV0LWtleQ=="
	for _, s := range []string{
		"", ";", "=", "nonsense", "AccountKey=" + key, "AccountName=a", "AccountName=a;AccountKey=" + key + "!", "AccountName=a;AccountKey",
		"AccountName=;AccountKey=" + key + ";BlobEndpoint=", "AccountName=a;AccountKey=" + key + ";BlobEndpoint=http://[",
		"AccountName=a;AccountKey=" + key + ";BlobEndpoint=/path", "BlobEndpoint=http://ho st;SharedAccessSignature=sig=" + key,
		"BlobEndpoint=http://%zz;SharedAccessSignature=sig=" + key, "BlobEndpoint=://;SharedAccessSignature=sig=" + key,
	} {
		if _, err := NewFromConnectionString(s, Options{}); err == nil || strings.Contains(err.Error(), "c2Vj") {
			t.Errorf("%q: %v", s, err)
		}
	}
}

// FuzzConnectionString parses connection strings of any form. Errors quote nothing, and what is accepted has
// a host and a login.
func FuzzConnectionString(f *testing.F) {
	f.Add("UseDevelopmentStorage=true;DevelopmentStorageProxyUri=http://proxy")
	f.Add("DefaultEndpointsProtocol=https;AccountName=a;AccountKey=a2V5;EndpointSuffix=core.windows.net")
	f.Add("BlobEndpoint=https://a.example/;SharedAccessSignature=?sv=1&sig=x")
	f.Fuzz(func(t *testing.T, text string) {
		a, err := ParseConnectionString(text)
		if err != nil {
			if strings.Contains(err.Error(), "\n") || len(text) > 60 && strings.Contains(err.Error(), text) {
				t.Errorf("the error of %q is %q", text, err)
			}
			return
		}
		if u, err := url.Parse(a.url.String()); err != nil || u.Host == "" {
			t.Errorf("%q has the endpoint %v", text, a.url)
		}
		if a.key == nil && a.url.RawQuery == "" {
			t.Errorf("%q has no login", text)
		}
	})
}
