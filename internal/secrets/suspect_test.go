package secrets_test

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/planvault/azblob/internal/secrets"
)

func TestSuspicious(t *testing.T) {
	for name, want := range map[string]bool{
		"Password": true, "db_passwd": true, "APIKey": true, "api-key": true, "apikey": true, "AccountKey": true, "accountKeyBase64": true, "connectionString": true,
		"ConnStr": true, "StorageConnectionstring": true, "SASToken": true, "sas": true, "Credentials": true, "clientSecret": true, "CLIENT_SECRET": true, "PrivateKeyPEM": true,
		"Key": false, "key": false, "Keys": false, "PublicKey": false, "PrimaryKey": false, "SecretName": false, "tokenUrl": false, "TokenCount": false, "Passenger": false, "Sassy": false, "Tokenize": false, "": false, "_": false,
	} {
		if got := secrets.Suspicious(name); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestUntagged(t *testing.T) {
	type account struct {
		Name, Token string
		Renamed     string `json:"passwd"`
		Tagged      string `json:"secret" vault:"secret"`
		Tokens      int
		Tokened     bool
		TokenUntil  time.Time
		SASes       map[string][]byte `json:"sas"`
		Any         any               `json:"pwd"`
		Absent      string            `json:"-"`
		Credentials *account
		Secrets     []struct{ Value string }
	}
	type request struct {
		account
		Token string
		List  []account
	}
	want := []string{"/req/List/*/Token", "/req/List/*/passwd", "/req/List/*/pwd", "/req/List/*/sas", "/req/Token", "/req/passwd", "/req/pwd", "/req/sas"}
	if got := secrets.Untagged("/req", reflect.TypeFor[*request]()); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if got := secrets.Untagged("/req", nil); got != nil {
		t.Errorf("no type: %q", got)
	}
}

func TestSuspects(t *testing.T) {
	text := `{"Token": "x", "pwd": "", "tokens": 3, "sas": "(secret)", "list": [{"secret": ["a", "b"]}, {"secret": {"value": "c"}}], "key": "k"}`
	if got, want := secrets.Suspects("/resp", []byte(text)), []string{"/resp/Token", "/resp/list/*/secret/*"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := secrets.Suspects("/resp", []byte(`{`)); got != nil {
		t.Errorf("no JSON: %q", got)
	}
}
