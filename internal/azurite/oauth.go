package azurite

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"os"
	"path/filepath"
	"time"

	"github.com/planvault/azblob/internal/selfsigned"
)

// Token returns an unsigned bearer token that a server with [WithOAuth] accepts until it expires. Azure
// refuses it.
func Token(expires time.Time) string {
	const issuer = "https://sts.windows.net/00000000-0000-0000-0000-000000000000/"
	now := time.Now()
	encode := func(claims map[string]any) string {
		data, err := json.Marshal(claims)
		if err != nil {
			panic(err) // strings and numbers always marshal
		}
		return base64.RawURLEncoding.EncodeToString(data)
	}
	return encode(map[string]any{"alg": "none", "typ": "JWT"}) + "." +
		encode(map[string]any{
			"aud": "https://storage.azure.com",
			"iss": issuer,
			"iat": now.Unix(),
			"nbf": now.Add(-time.Minute).Unix(),
			"exp": expires.Unix(),
		}) + "."
}

// keyPair is a self-signed certificate for 127.0.0.1 and its files.
type keyPair struct {
	cert              tls.Certificate
	certFile, keyFile string
}

// newKeyPair creates a key pair with files in the folder dir.
func newKeyPair(dir string) (*keyPair, error) {
	cert, err := selfsigned.New(time.Now())
	if err != nil {
		return nil, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	if err != nil {
		return nil, err
	}
	p := &keyPair{
		cert:     cert,
		certFile: filepath.Join(dir, "cert.pem"),
		keyFile:  filepath.Join(dir, "key.pem"),
	}
	for _, f := range []struct {
		name, kind string
		der        []byte
	}{
		{p.certFile, "CERTIFICATE", cert.Leaf.Raw},
		{p.keyFile, "PRIVATE KEY", keyDER},
	} {
		data := pem.EncodeToMemory(&pem.Block{Type: f.kind, Bytes: f.der})
		if err := os.WriteFile(f.name, data, 0o600); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// clientConfig returns a TLS configuration that trusts only this certificate.
func (p *keyPair) clientConfig() *tls.Config { return selfsigned.ClientConfig(p.cert) }
