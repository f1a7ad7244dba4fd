package emulator

// Lies returns a [Random] rule that lies as proxies, captive portals and load balancers do. It replaces
// answers of the service by pages of the proxy, before or after the request took effect, removes headers from
// the service's answers, redirects, and cuts the answers to batches short. A client can tell each of these
// lies from an answer of the service and should survive all of them.
func Lies(chance float64, seed uint64) *Rule {
	const page = "<html><body>Please sign in.</body></html>"
	return Random(chance, seed,
		Foreign(200, "text/html", page),
		Foreign(200, "text/html", page).Applied(),
		Foreign(201, "text/html", ""),
		Foreign(404, "text/html", page),
		Foreign(404, "", "").Applied(),
		Foreign(409, "text/html", page),
		Foreign(412, "", ""),
		Foreign(403, "text/html", page),
		Foreign(502, "text/html", page).Applied(),
		Foreign(507, "", "").Applied(),
		Foreign(520, "text/html", page).Applied(),
		Redirect(302, "http://portal.invalid/login"),
		Redirect(307, "https://elsewhere.invalid/").Applied(),
		Strip("ETag"),
		Strip("X-Ms-Request-Id"),
		Strip("X-Ms-Version"),
		Strip("Last-Modified"),
		CutBatch(0),
		CutBatch(1),
	)
}

// FalseAbsences returns a rule that answers HEAD and DELETE requests, also those of a batch, with the service's
// own 404 although the blob exists, with probability chance. A client can't recognize such an answer. A reader has
// to believe it, but no client may remove anything because of it.
func FalseAbsences(chance float64, seed uint64) *Rule {
	return On(HeadBlob, DeleteBlob, BatchItem).Chance(chance, seed).Do(Answer(404, "BlobNotFound"))
}
