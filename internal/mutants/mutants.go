package main

// mutants take away what the protocol rests on, one thing at a time: conditions, writeids, orders, checks of bytes, ages, and
// what readers conclude.
var mutants = []mutant{
	// Conditions.
	{"condition: Create overwrites an entry", "creator.go", "c.entry.body, c.entry.metadata, blob.IfNew)", "c.entry.body, c.entry.metadata, blob.Always)", "TestCreate"},
	{"condition: Create overwrites sub-objects", "creator.go", "p.body, p.metadata, blob.IfNew)", "p.body, p.metadata, blob.Always)", "TestTraces"},
	{"condition: Create overwrites an object", "creator.go", "c.v.client.Put(commit, ref, body, metadata, blob.IfNew)", "c.v.client.Put(commit, ref, body, metadata, blob.Always)", "TestTraces"},
	{"condition: an update ignores its version", "updater.go", "cond = blob.IfMatch(etag)\n\t} else if o.Kind()", "cond = blob.IfThere\n\t} else if o.Kind()", "TestUpdate"},
	{"condition: an update without a version creates", "updater.go", "cond := blob.IfThere\n\tif etag, _, _ :=", "cond := blob.Always\n\tif etag, _, _ :=", "TestUpdate"},
	{"condition: a completion creates an object", "updater.go", "v.putObject(ctx, plan, body, blob.IfThere)", "v.putObject(ctx, plan, body, blob.Always)", "TestTraces"},
	{"condition: Delete removes any object", "deleter.go", "v.client.Delete(ctx, keys.object(), blob.IfMatch(etag))", "v.client.Delete(ctx, keys.object(), blob.Always)", "TestTraces|TestDelete"},
	{"condition: Recovery rewrites any object", "recovery.go", "r.v.putObject(ctx, plan, body, blob.IfMatch(objectETag))", "r.v.putObject(ctx, plan, body, blob.Always)", "TestRecovery"},
	{"condition: Recovery removes any object", "recovery.go", "r.v.client.Delete(ctx, s.keys.object(), blob.IfMatch(now.object.ETag))", "r.v.client.Delete(ctx, s.keys.object(), blob.Always)", "TestRecovery"},
	{"condition: Recovery removes any entry", "recovery.go", "r.v.clear(ctx, s.keys, parts, now.entry.ETag)", "r.v.clear(ctx, s.keys, parts, \"\")", "TestRecovery|TestTraces"},
	{"condition: Recovery removes any sub-object", "recovery.go", "blob.Target{Name: item.Name, ETag: item.ETag}", "blob.Target{Name: item.Name}", "TestTraces|TestRecovery"},
	{"condition: Recovery removes any marker", "recovery.go", "if err := r.v.deleteMarker(ctx, s.keys.marker(), s.marker.ETag); err != nil {\n\t\t\treturn err\n\t\t}\n\t}\n\tif s.deleteMarker", "if err := r.v.deleteMarker(ctx, s.keys.marker(), \"\"); err != nil {\n\t\t\treturn err\n\t\t}\n\t}\n\tif s.deleteMarker", "TestRecoveryBeside|TestTraces"},
	{"condition: a late Create removes any object", "creator.go", "c.v.client.Delete(ctx, ref, blob.IfMatch(objectETag))", "c.v.client.Delete(ctx, ref, blob.Always)", "TestCreate"},

	// Writeids and unknown outcomes.
	{"writeid: never recognised", "internal/blob/client.go", "there.Metadata[WriteID] == metadata[WriteID]", "there.Metadata[WriteID] == \"\"", "TestCreateLost"},
	{"writeid: always recognised", "internal/blob/client.go", "there.Metadata[WriteID] == metadata[WriteID]", "there.Metadata[WriteID] != \"\"", "TestUpdate"},
	{"writeid: equal content is ours", "azblob.go", "id := v.unknown.take(same)", "id := uuid.NewSHA1(uuid.Nil, same.body[:]).String()", "TestUpdate"},
	{"writeid: forgotten after an unknown outcome", "azblob.go", "if blob.IsUnknown(err) {", "if false {", "TestUpdateUnknown"},
	{"writeid: kept for all that do the same", "azblob.go", "\tdelete(u.ids, w)\n\treturn id", "\treturn id", "TestUpdate"},
	{"writeid: a Create goes on with an earlier one", "creator.go", "call: uuid.NewString()", "call: plan.ID.String()", "TestCreate|TestRecovery"},
	{"unknown: a context's end is certain", "internal/blob/retry.go", "return ended(ctx, call.write, last)", "return ended(ctx, false, last)", "TestCreateCancelled"},
	{"unknown: a lost answer is forgotten", "internal/blob/retry.go", "unknown = unknown || call.write && v.applied", "unknown = false", "TestUpdateUnknown"},
	{"unknown: a broken connection has no effect", "internal/blob/errors.go", "return verdict{reason: Unreachable, again: true, applied: true}\n", "return verdict{reason: Unreachable, again: true}\n", "TestUpdateUnknown"},

	// Orders.
	{"order: the object before the sub-objects", "creator.go", "\tif err := c.putParts(ctx); err != nil {\n\t\treturn c.undo(caller, err)\n\t}\n", "\tif body, metadata, err := c.object(); err == nil {\n\t\t_, _ = c.v.client.Put(ctx, c.keys.object(), body, metadata, blob.IfNew)\n\t}\n\tif err := c.putParts(ctx); err != nil {\n\t\treturn c.undo(caller, err)\n\t}\n", "TestCrashInCreate|TestTraces"},
	{"order: Create without a marker", "creator.go", "if err := c.putMarker(ctx); err != nil {", "if err := c.v.ensureContainer(ctx, c.keys.container); err != nil {", "TestCrashInCreate|TestTraces"},
	{"order: Delete without a delete marker", "deleter.go", "\tif _, err := v.client.Put(ctx, ref, nil, map[string]string{blob.WriteID: uuid.NewString()}, blob.Always); err != nil {\n\t\treturn at(\"write delete marker\", ref, err)\n\t}\n", "\t_ = ref\n\t_ = uuid.NewString\n", "TestCrashInDelete|TestTraces"},
	{"order: the entry before the sub-objects in Delete", "deleter.go", "\tif err := v.deleteParts(ctx, keys.container, parts); err != nil {\n\t\treturn err\n\t}\n\tcond := blob.Always\n\tif entryETag != \"\" {\n\t\tcond = blob.IfMatch(entryETag)\n\t}\n\treturn at(\"remove entry\", keys.entry(), v.client.Delete(ctx, keys.entry(), cond))", "\tcond := blob.Always\n\tif entryETag != \"\" {\n\t\tcond = blob.IfMatch(entryETag)\n\t}\n\tif err := v.client.Delete(ctx, keys.entry(), cond); err != nil {\n\t\treturn at(\"remove entry\", keys.entry(), err)\n\t}\n\treturn v.deleteParts(ctx, keys.container, parts)", "TestDeleteOrder"},
	{"order: the marker goes before the object is settled", "updater.go", "\tif _, err := v.putObject(ctx, plan, body, blob.IfThere); err != nil {", "\tif err := v.deleteMarker(ctx, keys.marker(), \"\"); err != nil {\n\t\treturn begun(err)\n\t}\n\tif _, err := v.putObject(ctx, plan, body, blob.IfThere); err != nil {", "TestCompletion|TestCrashInCompletion"},
	{"order: a completion leaves its marker", "updater.go", "if err := v.deleteMarker(ctx, keys.marker(), \"\"); err != nil {\n\t\treturn begun(err)\n\t}\n\treturn nil", "return nil", "TestCompletion"},

	// Bytes.
	{"MD5: not checked", "internal/blob/client.go", "!bytes.Equal(sum[:], resp.ContentMD5)", "false", "TestReadDamage"},
	{"MD5: a mismatch is not read again", "internal/blob/errors.go", "return verdict{reason: Damaged, again: true, once: true}\n\tcase errors.As(err, &final)", "return verdict{reason: Damaged}\n\tcase errors.As(err, &final)", "TestReadRidesOut"},
	{"MD5: a short body is whole", "internal/blob/client.go", "if length := resp.ContentLength; length != nil && int64(len(body)) < *length {", "if length := resp.ContentLength; length != nil && int64(len(body)) < 0*(*length) {", "TestGet|TestRead"},
	{"MD5: not sent", "internal/blob/client.go", "\t\tTransactionalValidation: sdk.TransferValidationTypeMD5(sum[:]),\n\t\tHTTPHeaders:             &sdk.HTTPHeaders{BlobContentType: to.Ptr(\"application/json\"), BlobContentMD5: sum[:]},", "\t\tHTTPHeaders:             &sdk.HTTPHeaders{BlobContentType: to.Ptr(\"application/json\"), BlobContentMD5: sum[:0]},", "TestPut"},

	// Answers.
	{"answer: anybody's is believed", "internal/blob/answer.go", "if why := stranger(req, resp, code); why != \"\" {", "if why := stranger(req, resp, code); why == \"?\" {", "TestAnswers"},
	{"answer: a write without an ETag", "internal/blob/answer.go", "needed = append(needed, \"ETag\", \"Last-Modified\")", "needed = append(needed, \"Last-Modified\")", "TestMarks"},
	{"answer: a blob without its time", "internal/blob/answer.go", "needed = append(needed, \"ETag\", \"Last-Modified\")", "needed = append(needed, \"ETag\")", "TestMarks"},
	{"answer: a refusal without a code", "internal/blob/answer.go", "if code == \"\" && status < http.StatusInternalServerError {", "if false {", "TestRefusals"},
	{"answer: any status", "internal/blob/answer.go", "if !documented(status) {", "if false {", "TestStatuses"},
	{"answer: of another host", "internal/blob/answer.go", "resp.Request.URL.Host != req.URL.Host:", "resp.Request.URL.Host != req.URL.Host && false:", "TestRedirects"},
	{"answer: a stranger's says that nothing was written", "internal/blob/errors.go", "again: true, applied: true, after: foreign.after}", "again: true, after: foreign.after}", "TestAnswers"},
	{"answer: an http.Client follows redirects", "internal/blob/client.go", "own.CheckRedirect = stay", "own.CheckRedirect = client.CheckRedirect", "TestRedirects"},
	{"answer: a body of any announced length", "internal/blob/answer.go", "if resp.ContentLength > most {", "if false {", "TestBodiesBeyond"},
	{"answer: a body of any length", "internal/blob/answer.go", "if b.left -= int64(n); b.left < 0 {", "if b.left -= int64(n) / (1 << 40); b.left < 0 {", "TestBodiesBeyond"},
	{"answer: a listed blob without its time", "internal/blob/page.go", " || item.LastModified.IsZero()", "", "TestListed|TestReadPage"},
	{"batch: what was not answered is done", "internal/blob/batch.go", "return errUnanswered", "return nil", "TestBatch"},
	{"batch: what was answered is asked for again", "internal/blob/batch.go", "left = failed", "", "TestBatch"},
	{"batch: asked for again where it is refused", "internal/blob/batch.go", "c.noBatches.Store(true)", "c.noBatches.Store(false)", "TestBatches"},
	{"code: snapshots are a changed version", "internal/blob/codes.go", "refused(\"the blob has snapshots, which the vault does not remove: delete them\")", "mismatch", "TestOnlyFailed"},
	{"code: a lease is a changed version", "internal/blob/codes.go", "refused(\"somebody holds a lease on it, which the vault never does: break the lease\")", "mismatch", "TestOnlyFailed"},

	// Retries and slots.
	{"retry: a deadline of the vault's own lifts MaxElapsed", "internal/blob/retry.go", "return deadline && ctx.Value(ownKey{}) == nil", "return deadline", "TestWithin|TestCreateKeeps"},
	{"retry: a deadline in an outage is no outage", "internal/blob/retry.go", "reason = Unreachable", "reason = Ended", "TestDeadlines"},
	{"retry: never", "internal/blob/retry.go", "if !v.again || v.once && !onceMore", "if true || v.once && !onceMore", "TestCreateLost"},
	{"retry: Retry-After is not heard", "internal/blob/retry.go", "next = max(next, v.after)", "_ = v.after", "TestRetry|TestCreateBeyond"},
	{"retry: a try has no limit", "internal/blob/retry.go", "context.WithTimeout(context.WithValue(ctx, callKey{}, call), limit)", "context.WithTimeout(context.WithValue(ctx, callKey{}, call), limit*1000)", "TestCreateLost"},
	{"retry: more in flight than slots", "internal/blob/client.go", "slots: make(chan struct{}, o.Concurrency)", "slots: make(chan struct{}, 2*o.Concurrency)", "TestConcurrency"},
	{"retry: a failed page is the last", "internal/blob/client.go", "if !yield(page, err) || err != nil || next == \"\" {", "if err != nil && Is(err, Unreachable) {\n\t\t\t\treturn\n\t\t\t}\n\t\t\tif !yield(page, err) || err != nil || next == \"\" {", "TestList"},

	// The grace period.
	{"grace: Recovery takes the young", "recovery.go", "at.Sub(item.LastModified) <= v.grace+v.margin()", "at.Sub(item.LastModified) < 0", "TestRecoveryLeaves"},
	{"grace: by the client's clock", "recovery.go", "at.Sub(item.LastModified) <= v.grace+v.margin()", "time.Since(item.LastModified) <= v.grace+v.margin()", "TestRecoveryLeaves"},
	{"grace: no margin", "recovery.go", "<= v.grace+v.margin()", "<= v.grace", "TestRecoveryLeaves"},
	{"grace: the entry's age does not count", "recovery.go", "[]*blob.Item{s.marker, s.deleteMarker, now.entry, now.object}", "[]*blob.Item{s.marker, s.deleteMarker}", "TestRecoveryBeside"},
	{"grace: by the time of the look", "recovery.go", "return r.v.young(item, s.seen)", "return item != nil && r.v.young(item, item.Seen)", "TestRecoveryLooks"},
	{"grace: Recovery removes what was written since it looked", "recovery.go", "if !item.LastModified.Before(s.seen) {", "if false {", "TestRecoveryBeside"},
	{"grace: a late Create succeeds", "creator.go", "if time.Since(started) > c.v.grace {", "if false {", "TestCreateBeyond"},
	{"grace: a Create goes on for ever", "creator.go", "blob.Within(caller, started.Add(c.v.grace), errGrace)", "blob.Within(caller, started.Add(1000*c.v.grace), errGrace)", "TestCreateBeyond"},

	// What readers and Recovery conclude.
	{"read: an entry alone is a plan in listings", "lister.go", "return s.entry != nil && s.object != nil", "return s.entry != nil", "TestCrashInCreate"},
	{"read: a stale object is final", "reader.go", "if entry.State.Status == workflow.NotStarted || object.State.Status.Final() {", "if entry.State.Status == workflow.NotStarted || entry.State.Status.Final() {", "TestCrashInCompletion"},
	{"read: a running plan from its object", "reader.go", "if entry.State.Status == workflow.NotStarted || object.State.Status.Final() {", "if true {", "TestReadRunning"},
	{"read: an entry that is older than its object", "reader.go", "if object.State.Status.Final() && !entry.State.Status.Final() {", "if false {", "TestEntrySetBack"},
	{"read: a part that is missing is no damage", "reader.go", "if errors.Is(err, storage.ErrNotFound) {\n\t\t// A part", "if errors.Is(err, storage.ErrExists) {\n\t\t// A part", "TestReadDamage"},
	{"undo: while an outcome is unknown", "creator.go", "if errors.Is(cause, storage.ErrUnknown) || ctx.Err() != nil {", "if ctx.Err() != nil {", "TestCreate"},
	{"undo: never", "creator.go", "\tif err := c.remove(ctx); err != nil {\n\t\treturn c.left(errors.Join(cause, err))\n\t}\n", "", "TestCreateUndoes"},
	{"undo: takes a marker that may be another's", "creator.go", "\tif c.markerETag == \"\" {\n\t\treturn nil\n\t}\n", "", "TestUndoBeside"},
	{"undo: takes sub-objects of any version", "creator.go", "blob.Target{Name: p.ref.Name, ETag: p.etag}", "blob.Target{Name: p.ref.Name}", "TestUndoBeside"},
	{"delete: an interrupted one is not found", "deleter.go", "if _, headErr := v.client.Head(ctx, keys.deleteMarker()); headErr != nil {", "if _, headErr := v.client.Head(ctx, keys.object()); headErr != nil {", "TestDelete"},
	{"recovery: a dry run works", "recovery.go", "if !r.opts.DryRun {", "if true {", "TestRecovery"},
	{"recovery: repairs unasked", "recovery.go", "if !r.opts.Repair {", "if false {", "TestRecoveryOfLost"},
	{"recovery: goes on past a sub-object that has changed", "internal/blob/batch.go", "return c.changed(ctx, containerName, unmatched)", "return nil", "TestRecoveryBeside"},
	{"recovery: another plan of the ID is damage", "recovery.go", "now.ETag != read.ETag", "now.ETag == read.ETag+\"?\"", "TestRecoveryLooks"},
	{"recovery: stops at what it can't mend", "recovery.go", "\t\t\tif err := r.settle(ctx, s); err != nil {\n\t\t\t\tfailed(", "\t\t\tif len(errs) > 0 {\n\t\t\t\treturn nil\n\t\t\t}\n\t\t\tif err := r.settle(ctx, s); err != nil {\n\t\t\t\tfailed(", "TestRecoveryOfLost"},
	{"list: a page that ends early is a short one", "internal/blob/page.go", "t, err := d.Token() // fails at an early end\n\t\tif err != nil {\n\t\t\treturn err", "t, err := d.Token()\n\t\tif err != nil {\n\t\t\treturn nil", "TestReadPage|TestList"},
	{"list: an answer without a list is an empty one", "internal/blob/page.go", "if err == nil && !listed {", "if false && !listed {", "TestReadPage|TestGarbled"},
	{"list: oldest first", "window.go", "for _, e := range slices.Backward(first.items) {", "for _, e := range first.items {", "TestSearch"},
	{"list: cut texts stay cut", "lister.go", "if p.cut && p.err == nil {", "if false {", "TestStrange"},
	{"prefix: another one's days", "key.go", "return day, err == nil && p.day(day) == container", "return day, err == nil || strings.HasPrefix(container, string(p))", "TestCreateOnly|ParseDay"},
	{"schema: a newer one is read", "schema.go", "case version > schema:", "case version > schema+5:", "TestReadDamage"},
	{"states: may go back", "storage/input.go", "if !known || s.Status == was || s.Status > was && !was.Final() {", "if true || !known || s.Status == was || s.Status > was && !was.Final() {", "TestStates"},
}
