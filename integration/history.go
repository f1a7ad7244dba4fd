package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/bundle"
	"github.com/planvault/azblob/storage/mirror"
	"github.com/planvault/azblob/workflow"
)

const (
	oldDays  = 2
	daysAgo  = 30
	onOldDay = 3 // plans of each old day
)

// asked says in the audit log who changes these vaults.
var asked = workflow.Attribution{By: "integration"}

// history shows what is done with finished plans, in three vaults of its own.
func history(ctx context.Context, s *stage) (err error) {
	var h past
	for _, v := range []**azblob.Vault{&h.vault, &h.imported, &h.copy} {
		if *v, err = s.open(ctx, s.newPrefix()); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, (*v).Close(context.WithoutCancel(ctx))) }()
	}
	h.day = time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -daysAgo)
	// A container that is held can't be deleted when the run ends.
	defer func() { _ = h.vault.Admin().Release(context.WithoutCancel(ctx), storage.DayOf(h.day), asked) }()
	const n = oldDays*onOldDay + 1 // plans, with the fork
	return s.acts(
		call{fmt.Sprintf("Restore %d finished plans on each of %d days, %d days ago", onOldDay, oldDays, daysAgo), func() error { return h.restore(ctx) }},
		call{"Fork the first of them; Create", func() error { return h.fork(ctx) }},
		call{"List and Count", func() error { return h.listed(ctx, h.vault) }},
		call{"Export, and Import into another prefix", func() error { return h.exported(ctx) }},
		call{"Mirror to a third one, twice", func() error {
			return errors.Join(h.mirrored(ctx, mirror.Report{Copied: n}), h.mirrored(ctx, mirror.Report{Unchanged: n}))
		}},
		call{"Build the catalogues of the old days", func() error { return h.catalogued(ctx, oldDays) }},
		call{"List and Count, from the catalogues", func() error { return h.listed(ctx, h.vault) }},
		call{"Hold a day, twice", func() error {
			return errors.Join(h.vault.Admin().Hold(ctx, storage.DayOf(h.day), asked), h.vault.Admin().Hold(ctx, storage.DayOf(h.day), asked))
		}},
		call{"Delete, Purge and Expire leave the day alone", func() error { return h.held(ctx) }},
		call{"Release it, twice", func() error {
			return errors.Join(h.vault.Admin().Release(ctx, storage.DayOf(h.day), asked), h.vault.Admin().Release(ctx, storage.DayOf(h.day), asked))
		}},
		call{"Purge a plan of the day", func() error { return h.purged(ctx) }},
		call{"List and Count, without the catalogue of that day", func() error { return h.listed(ctx, h.vault) }},
		call{"Mirror deletes it from the copy", func() error { return h.mirrored(ctx, mirror.Report{Unchanged: n - 1, Deleted: 1}) }},
		call{"The copy lists the same", func() error { return h.listed(ctx, h.copy) }},
		call{"Build the catalogue of that day again", func() error { return h.catalogued(ctx, 1) }},
		call{"Check", func() error { return errors.Join(sound(ctx, h.vault, n-1), sound(ctx, h.copy, n-1)) }},
		call{"Expire the old days", func() error { return h.expire(ctx) }},
		call{"The fork alone is left", func() error { return h.listed(ctx, h.vault) }},
		call{"Delete the fork", func() error { return h.vault.Delete(ctx, h.plans[0].ID) }},
	)
}

// past is what the step works on.
type past struct {
	vault, imported, copy *azblob.Vault
	day                   time.Time        // the older one
	plans                 []*workflow.Plan // as they must be listed
}

// restore stores plans of old days. They are final.
func (h *past) restore(ctx context.Context) error {
	for i := range oldDays * onOldDay {
		p := plantest.Small()
		p.ID = workflow.NewV7At(h.day.AddDate(0, 0, i/onOldDay).Add(time.Duration(i%onOldDay) * time.Hour))
		p.Name = fmt.Sprintf("old %d", i)
		// A Create elsewhere gives the sub-objects their IDs.
		if err := h.imported.Create(ctx, p); err != nil {
			return err
		}
		if err := h.imported.Delete(ctx, p.ID); err != nil {
			return err
		}
		plantest.Finish(p)
		p.State.Status, p.Reason = workflow.Stopped, workflow.StopRequested
		if err := h.vault.Restore(ctx, p); err != nil {
			return err
		}
		h.plans = append([]*workflow.Plan{p}, h.plans...)
	}
	last := h.plans[len(h.plans)-1]
	return errors.Join(is(h.vault.Restore(ctx, last), storage.ErrExists), reads(ctx, h.vault, last))
}

func (h *past) fork(ctx context.Context) error {
	from := h.plans[len(h.plans)-1]
	p, err := workflow.Fork(from, workflow.ForkOptions{AfterCompensation: true})
	if err != nil {
		return err
	}
	id := workflow.NewV7() // of today, whenever the plan ended
	for o := range workflow.Walk(p) {
		*o.Header().PlanID = id
	}
	if err := h.vault.Create(ctx, p); err != nil {
		return err
	}
	h.plans = append([]*workflow.Plan{p}, h.plans...)
	return errors.Join(reported(nil, p.ForkedFrom == from.ID, p.ForkedFrom), reads(ctx, h.vault, p))
}

// listed checks List, Count and each plan.
func (h *past) listed(ctx context.Context, v *azblob.Vault) error {
	if err := shows(h.plans)(v.List(ctx, 0)); err != nil {
		return err
	}
	n, err := v.Count(ctx, storage.Filters{})
	if err := reported(err, n == len(h.plans), n); err != nil {
		return err
	}
	for _, p := range h.plans {
		if err := reads(ctx, v, p); err != nil {
			return err
		}
	}
	return nil
}

func (h *past) exported(ctx context.Context) error {
	var text bytes.Buffer
	if _, err := bundle.Export(ctx, h.vault, &text, bundle.ExportOptions{}); err != nil {
		return err
	}
	report, err := bundle.Import(ctx, h.imported, &text, bundle.ImportOptions{By: workflow.Attribution{By: "integration"}})
	return errors.Join(reported(err, report.Restored == len(h.plans), report), h.listed(ctx, h.imported))
}

// mirrored mirrors the vault into its copy.
func (h *past) mirrored(ctx context.Context, want mirror.Report) error {
	r, err := mirror.Run(ctx, mirror.Pair{Source: h.vault, Copy: h.copy}, mirror.Options{By: workflow.Attribution{By: "integration"}, Delete: true})
	return reported(err, r.Unchanged == want.Unchanged && r.Copied == want.Copied && r.Deleted == want.Deleted, r)
}

// catalogued builds the catalogues of a number of days.
func (h *past) catalogued(ctx context.Context, days int) error {
	report, err := h.vault.Admin().Catalogue(ctx, azblob.CatalogueOptions{})
	return reported(err, len(report.Built) == days, report)
}

// purge purges the oldest plan.
func (h *past) purge(ctx context.Context) (storage.PurgeReport, error) {
	return storage.Purge(ctx, h.vault, storage.SelectIDs(h.plans[len(h.plans)-1].ID), storage.PurgeOptions{By: asked})
}

func (h *past) held(ctx context.Context) error {
	held, err := h.vault.Admin().Holds(ctx)
	if err := reported(err, len(held) == 1 && held[0] == storage.DayOf(h.day), held); err != nil {
		return err
	}
	purged, purgeErr := h.purge(ctx)
	expired, expireErr := h.vault.Admin().Expire(ctx, azblob.ExpireOptions{By: asked, OlderThanDays: daysAgo - 1})
	return errors.Join(
		is(h.vault.Delete(ctx, h.plans[len(h.plans)-1].ID), storage.ErrHeld),
		reported(purgeErr, purged.Held == 1, purged),
		reported(expireErr, len(expired.Days) == 1 && expired.Days[0].Result == azblob.ExpireHeld, expired),
		h.listed(ctx, h.vault),
	)
}

func (h *past) purged(ctx context.Context) error {
	report, err := h.purge(ctx)
	h.plans = h.plans[:len(h.plans)-1]
	return reported(err, report.Deleted == 1, report)
}

func (h *past) expire(ctx context.Context) error {
	report, err := h.vault.Admin().Expire(ctx, azblob.ExpireOptions{By: asked, OlderThanDays: 1})
	h.plans = h.plans[:1]
	return reported(err, report.Dropped() == oldDays, report)
}
