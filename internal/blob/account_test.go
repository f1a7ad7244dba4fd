package blob

import (
	"net/url"
	"strings"
	"testing"
)

func TestSecondaryEndpoints(t *testing.T) {
	const key = ";AccountName=name;AccountKey=a2V5"
	for _, test := range []struct{ cs, endpoint, want string }{
		{"BlobEndpoint=https://name.blob.core.windows.net" + key, "", "https://name-secondary.blob.core.windows.net"},
		{"BlobEndpoint=https://name.z1.blob.storage.azure.net/" + key, "", "https://name-secondary.z1.blob.storage.azure.net"},
		{"DefaultEndpointsProtocol=https" + key, "", "https://name-secondary.blob.core.windows.net"},
		{"BlobEndpoint=http://127.0.0.1:10000/name" + key, "", "http://127.0.0.1:10000/name-secondary"},
		{"BlobEndpoint=https://a.example;BlobSecondaryEndpoint=https://b.example/" + key, "", "https://b.example"},
		{"BlobEndpoint=https://a.example;BlobSecondaryEndpoint=https://b.example/" + key, "https://c.example", "https://c.example"},
		{"BlobEndpoint=https://a.example;SharedAccessSignature=sv=1&sig=x", "", "https://a-secondary.example?sv=1&sig=x"},
		{"BlobEndpoint=https://a.example;SharedAccessSignature=?sv=1&sig=x", "https://c.example", "https://c.example?sv=1&sig=x"},
		{"BlobEndpoint=https://localhost" + key, "", ""},
		{"BlobEndpoint=https://10.0.0.1" + key, "", ""},
		{"BlobEndpoint=https://[::ffff:10.0.0.1]:443" + key, "", ""},
		{"BlobEndpoint=https://a.example" + key, "/path", ""},
	} {
		primary, err := ParseConnectionString(test.cs)
		must(t, err)
		before := primary.url.String()
		second, err := primary.Secondary(test.endpoint)
		if (err == nil) != (test.want != "") || err == nil && second.url.String() != test.want {
			t.Errorf("%s, %q: got %v, %v, want %s", test.cs, test.endpoint, second.url, err, test.want)
		}
		if primary.url.String() != before {
			t.Errorf("%s: the primary is now at %s", test.cs, primary.url)
		}
	}
}

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
		_, _ = a.Secondary("")
	})
}
