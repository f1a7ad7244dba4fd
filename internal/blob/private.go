package blob

import (
	"crypto/x509"
	"errors"
	"net"
	"regexp"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
)

// Users of an API may see the text of an error. They need neither know where the vault is nor how its requests get there.

// place matches a URL, a host or an address in a text.
var place = regexp.MustCompile(`[a-z]+://[^\s"'<>)]+|\[[0-9a-fA-F:.]+\](?::\d+)?|\b(?:[a-z0-9-]+(?:\.[a-z0-9-]+)*\.[a-z]{2,}|localhost|\d+(?:\.\d+){3})\b(?::\d+)?`)

// private returns the text of an error of the network or the service without places: the host and the container of
// the request, and all others unless the service has answered, because the client then knows each word of the text.
func private(err error, host, container string) string {
	text := err.Error()
	hide := func(words ...string) {
		for _, word := range words {
			if word != "" {
				whole := regexp.MustCompile(`(^|[^A-Za-z0-9])` + regexp.QuoteMeta(word) + `($|[^A-Za-z0-9])`)
				text = whole.ReplaceAllString(text, "${1}…${2}")
			}
		}
	}
	if host != "" {
		text = strings.ReplaceAll(text, host+": ", "")
	}
	hide(host, container)
	if _, answered := errors.AsType[*azcore.ResponseError](err); answered {
		return text
	}
	for op, ok := errors.AsType[*net.OpError](err); ok; op, ok = errors.AsType[*net.OpError](op.Err) {
		for _, addr := range []net.Addr{op.Source, op.Addr} {
			if addr != nil {
				hide(addr.String())
			}
		}
	}
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		hide(dns.Name, dns.Server)
	}
	if name, ok := errors.AsType[x509.HostnameError](err); ok {
		hide(name.Host)
		if name.Certificate != nil {
			hide(name.Certificate.DNSNames...)
			hide(name.Certificate.Subject.CommonName)
		}
	}
	return place.ReplaceAllStringFunc(text, func(word string) string {
		if strings.HasSuffix(word, ".json") { // the name of a blob
			return word
		}
		return "…"
	})
}
