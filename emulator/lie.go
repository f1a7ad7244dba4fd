package emulator

// Lies returns rules that lie as proxies, captive portals and load balancers do.
// They replace the service's answers by pages of their own, before and after the
// request took effect, take headers out of true answers, redirect, and cut the
// answers to batches short. Each of them befalls a request with a probability of
// chance. Each can be told from the service's answer, so a client survives all of
// them. The same seed makes the same choices.
func Lies(chance float64, seed uint64) []*Rule {
	const page = "<html><body>Please sign in.</body></html>"
	effects := []Effect{
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
	}
	var rules []*Rule
	for _, e := range effects {
		rules = append(rules, On().Chance(chance, seed).Do(e))
		seed++
	}
	for _, n := range []int{0, 1} {
		rules = append(rules, On(BatchDelete).Chance(chance, seed).Do(CutBatch(n)))
		seed++
	}
	return rules
}

// FalseAbsences returns rules that answer a look at a blob, or its removal, with
// the service's own 404 although the blob is there, each with a probability of
// chance. Nothing tells such an answer from a true one. A reader has to believe
// it; whoever removes something because of it must not.
func FalseAbsences(chance float64, seed uint64) []*Rule {
	return []*Rule{
		On(HeadBlob).Chance(chance, seed).Do(Answer(404, codeBlobNotFound)),
		On(DeleteBlob).Chance(chance, seed+1).Do(Answer(404, codeBlobNotFound)),
	}
}
