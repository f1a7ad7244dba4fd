package firsthour

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/planvault/azblob/internal/blob"
)

const leaseID = "5c1f9c9e-7d0c-4d9a-8a65-3a1b0c2d4e5f"

// Times of the probe of leases: beyond the end of one of 15 seconds, between two looks at a name that is not free yet,
// and the longest that it may take.
const (
	leaseOver = 17 * time.Second
	freePause = 5 * time.Second
	freeLimit = 5 * time.Minute
)

func leases(ctx context.Context, x *trial) {
	name, ok := x.fresh(ctx)
	if !ok {
		return
	}
	at := name + "?restype=container"
	acquire := func() answer {
		return x.wire.send(ctx, "PUT", at+"&comp=lease", nil,
			"X-Ms-Lease-Action", "acquire", "X-Ms-Lease-Duration", "15", "X-Ms-Proposed-Lease-Id", leaseID)
	}
	remove := func() answer { return x.wire.send(ctx, "DELETE", at, nil, "X-Ms-Lease-Id", leaseID) }
	x.must("acquire", acquire(), "201")
	x.see("acquire again", acquire(), "201")
	if x.Wait(ctx, leaseOver) != nil {
		return
	}
	x.see("delete when the lease is over", remove(), "412")
	x.must("acquire", acquire(), "201")
	x.see("delete without the lease", x.wire.send(ctx, "DELETE", at, nil), "412")
	x.see("delete with it", remove(), "202")
	x.freed(ctx, name)
}

// freed adds what the service says of a container that is being deleted, until its name is free.
func (x *trial) freed(ctx context.Context, name string) {
	began, looks := time.Duration(0), 0
	for ; began <= freeLimit; began += freePause {
		a := x.wire.send(ctx, "PUT", name+"?restype=container", nil)
		if a.is("201") {
			x.note("the name is free", "within "+began.String(), "within "+freeLimit.String(), true)
			return
		}
		if looks++; looks == 1 {
			x.see("create again", a, "409 ContainerBeingDeleted")
			x.see("GET of the container", x.wire.send(ctx, "GET", name+"?restype=container", nil), "404")
			x.see("GET of a blob", x.wire.send(ctx, "GET", name+"/blob", nil), "404")
			names, err := x.listed(ctx)
			x.note("listed", fmt.Sprint(slices.Contains(names, name)), "false", err == nil && !slices.Contains(names, name))
		} else if !a.is("409 ContainerBeingDeleted") {
			x.see("create again", a, "409 ContainerBeingDeleted")
			return
		}
		if x.Wait(ctx, freePause) != nil {
			return
		}
	}
	x.note("the name is free", "not within "+freeLimit.String(), "within "+freeLimit.String(), false)
}

// RampWrites is how many blobs a ramp writes at most, and RampTime how long it takes.
const (
	RampWrites = 60_000
	RampTime   = time.Minute
)

// rampWorkers is how many writes are under way at the end of a ramp.
const rampWorkers = 256

func ramp(ctx context.Context, x *trial) {
	if !x.Ramp {
		x.cannot("", "planvault doctor --first-hour --ramp writes, for up to $0.33")
		return
	}
	var day string
	for i, stage := range []struct {
		what  string
		first int // workers
	}{{"a new container", 4}, {"a warm container", 4}, {"across midnight", rampWorkers}} {
		if i != 1 {
			var ok bool
			if day, ok = x.fresh(ctx); !ok {
				return
			}
		}
		writes, took, refused := x.climb(ctx, fmt.Sprintf("%s/ramp/%d-", day, i), stage.first)
		seen, ok := fmt.Sprintf("no refusal of %d writes in %v", writes, took), true
		if refused != nil {
			seen, ok = fmt.Sprintf("%s after %d writes in %v", refused.marks(), writes, took), refused.is("503")
		}
		x.note(stage.what, seen, "no refusal, or 503", ok)
	}
}

// climb writes with ever more workers, until the service refuses a write or a third of the ramp is used up.
func (x *trial) climb(ctx context.Context, names string, workers int) (writes int, took time.Duration, refused *answer) {
	began := time.Now()
	for writes < RampWrites/3 && time.Since(began) < RampTime/3 && ctx.Err() == nil {
		n := min(workers*32, RampWrites/3-writes)
		answers := each(workers, n, func(i int) answer { return x.put(ctx, fmt.Sprintf("%s%06d", names, writes+i), nil) })
		if i := slices.IndexFunc(answers, func(a answer) bool { return a.status != http.StatusCreated }); i >= 0 {
			writes, refused = writes+i, &answers[i]
			break
		}
		writes += n
		workers = min(2*workers, rampWorkers)
	}
	return writes, time.Since(began).Round(100 * time.Millisecond), refused
}

// kinds tries what only some accounts have.
func kinds(ctx context.Context, x *trial) {
	const hierarchy = "hierarchical"
	info := x.info(ctx)
	sku := info.header.Get("X-Ms-Sku-Name")
	switch {
	case !info.is("200"):
		x.cannot(hierarchy, "the login may not ask what the account is: "+info.String())
	case x.hierarchical(ctx):
		groups := x.container + "?restype=container&comp=list&prefix=plans/&delimiter=-"
		x.see("delimiter -", x.wire.send(ctx, "GET", groups, nil), "200 or 400")
		last := "plans/" + ids[1]
		x.pages(ctx, "startFrom", "&startFrom="+last, []string{last, last + "-change-1", last + "-delete"})
		target := x.container + "/directory/blob"
		x.see("PUT with If-None-Match", x.put(ctx, target, nil, "If-None-Match", "*"), "201")
		x.see("again", x.put(ctx, target, nil, "If-None-Match", "*"), "409 or 412")
	default:
		x.cannot(hierarchy, "the account is flat")
	}
	x.secondary(ctx, sku)
}

// secondary tries the secondary of an account, whose SKU may be unknown.
func (x *trial) secondary(ctx context.Context, sku string) {
	const geo = "secondary"
	if sku != "" && !strings.Contains(sku, "_RAG") {
		x.cannot(geo, "the account is "+sku)
		return
	}
	second, err := x.account.Secondary("")
	if err != nil {
		x.cannot(geo, err.Error())
		return
	}
	w := x.wire
	w.login = &blob.Login{Account: second}
	a := w.send(ctx, "GET", x.container+"/versions/a", nil)
	if sku == "" && !a.is("200 or 404") {
		x.cannot(geo, "the account's SKU is unknown, and its secondary says "+a.String())
		return
	}
	x.see("GET at the secondary", a, "200 or 404")
	x.see("statistics", w.send(ctx, "GET", "?restype=service&comp=stats", nil), "200 or 403")
}

// info asks what kind of account this is.
func (x *trial) info(ctx context.Context) answer {
	return x.wire.send(ctx, "GET", "?restype=account&comp=properties", nil)
}

// hierarchical reports whether the account is known to have a hierarchical namespace.
func (x *trial) hierarchical(ctx context.Context) bool {
	return x.info(ctx).header.Get("X-Ms-Is-Hns-Enabled") == "true"
}
