// Package azblobotel reports what a vault, a fleet and an engine do to OpenTelemetry. It is a module of its
// own, so the vault itself does not depend on OpenTelemetry.
//
//	observer, err := azblobotel.New(azblobotel.Options{})
//	vault, err := azblob.New(ctx, "my-cluster", endpoint, cred, plugins, azblob.Options{Observer: observer})
//
// [New] returns the observer of a vault, [NewFleet] that of a node, and [NewEngine] that of an engine. They use
// the global providers of traces and metrics unless options name others. An observer may serve several vaults,
// nodes or engines, and is safe for concurrent use.
//
// # Spans
//
// Each call of a method of the vault is a span, a child of the span in the context of the call. Each HTTP
// request is a child of the span of its call, with the times at which it was sent and answered. Retries,
// conflicts, repairs and damaged catalogues are events of the span of the call.
//
// Spans have IDs of plans and names of blobs. They have no URL, no body and no header.
//
// # Errors
//
// A span has the status Error, and its metrics have the attribute error.type, if the call failed. Calls with
// the outcomes not_found, exists, held and conflict have not failed: the service answered, and the answer is part of
// the protocol. A context that its caller canceled is no failure, and neither is a call of a closed vault. A
// context whose deadline passed is a failure, of the type timeout, because callers see an outage in this way.
// All calls have the attribute azblob.outcome.
//
// A request has failed if there was no answer, or an answer with the status 401, 403, 408, 429, or 500 or
// above. The other statuses are answers to conditions.
//
// # Metrics
//
// docs/operating.md lists the metrics. Their attributes have few values: names of methods and requests,
// billing classes, statuses, outcomes, the namespace, the members of the fleet, and ten
// keys for which plans wait. No metric has the ID of a
// plan, a container or a blob.
package azblobotel
