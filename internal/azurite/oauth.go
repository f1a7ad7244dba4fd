package azurite

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
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
	cert              *x509.Certificate
	certFile, keyFile string
}

// newKeyPair creates a key pair with files in the folder dir.
func newKeyPair(dir string) (*keyPair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: "Azurite for tests"},
		NotBefore:             now.Add(-time.Hour),
		NotAfter:              now.Add(30 * 24 * time.Hour),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
		IsCA:                  true,
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1)},
		DNSNames:              []string{"localhost"},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
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
		{p.certFile, "CERTIFICATE", der},
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
func (p *keyPair) clientConfig() *tls.Config {
	pool := x509.NewCertPool()
	pool.AddCert(p.cert)
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
}
