package blob

import "github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"

// meaning is what a documented error code says about a request, and how to resolve it.
type meaning struct {
	verdict
	remedy    string
	protected bool // the blob or the container can't be changed or removed, whoever asks
}

func refused(remedy string) meaning {
	return meaning{verdict: verdict{reason: Refused}, remedy: remedy}
}

func protected(remedy string) meaning {
	return meaning{verdict: verdict{reason: Refused}, remedy: remedy, protected: true}
}

// sealed means that a blob can't be read, whoever asks, while others can.
func sealed(remedy string) meaning { return meaning{verdict: verdict{reason: Damaged}, remedy: remedy} }

// Meanings that several codes share.
var (
	mismatch = meaning{verdict: verdict{reason: Mismatch}}
	// otherLease is an answer to a request that is about the lease of a container.
	otherLease = meaning{verdict: verdict{reason: Leased}, remedy: "it has another lease, or none that the request names"}
	// passing is a failure of the service that may occur after the effect.
	passing = meaning{verdict: verdict{reason: Unreachable, again: true, applied: true}}
	// waiting is a state that ends by itself. The request has had no effect.
	waiting = meaning{verdict: verdict{reason: Unreachable, again: true}}
	garbled = meaning{verdict: verdict{reason: Damaged, again: true, once: true}}

	// otherVersion is a refusal of a version, or of a header of that version, that the service does not know.
	otherVersion = refused("the service may not know this version: give an older one with Options.APIVersion, or --service-version; " +
		"before " + Version + ", listings read each day from its start")
	leased = protected("the blob has a lease, which the vault never takes: break the lease")
	// undeletable is a refusal to delete a container.
	undeletable = protected("immutability keeps the container: once its blobs and their versions are gone, delete it with az storage container-rm delete; " +
		"use an account and containers without immutability")
	sas = refused("the shared access signature does not allow the request: it needs the blob service, the resource types service, container and object, " +
		"the permissions rwdlc, and this address and protocol")
	key = refused("check the account key, shared access signature or credential, and this machine's clock")
)

// unsent is the remedy for a request that the service calls malformed by a code without a meaning.
const unsent = "the vault does not send such requests: check for a proxy that changes requests"

// meanings contains the codes of bloberror, except those of requests that the vault does not send: malformed ones,
// and those for page and append blobs, blocks, copies and tiers. Below status 500, a code decides whatever the status is.
var meanings = map[bloberror.Code]meaning{
	// The condition does not hold.
	bloberror.BlobAlreadyExists:      mismatch,
	bloberror.ConditionNotMet:        mismatch,
	bloberror.ContainerAlreadyExists: mismatch,
	bloberror.ResourceAlreadyExists:  mismatch,
	bloberror.TargetConditionNotMet:  mismatch,

	// The lease of the container is not the one that the request names, or there is none.
	bloberror.LeaseAlreadyPresent:                   otherLease,
	bloberror.LeaseIDMismatchWithContainerOperation: otherLease,
	bloberror.LeaseIDMismatchWithLeaseOperation:     otherLease,
	bloberror.LeaseIsBreakingAndCannotBeAcquired:    otherLease,
	bloberror.LeaseLost:                             otherLease,
	bloberror.LeaseNotPresentWithContainerOperation: otherLease,
	bloberror.LeaseNotPresentWithLeaseOperation:     otherLease,

	// The blob or container does not exist.
	bloberror.BlobNotFound:      {verdict: verdict{reason: Absent}},
	bloberror.ContainerNotFound: {verdict: verdict{reason: AbsentContainer}},
	bloberror.ResourceNotFound:  {verdict: verdict{reason: Absent}},

	// The failure is temporary.
	bloberror.AccountBeingCreated:   waiting,
	bloberror.ContainerBeingDeleted: waiting,
	bloberror.InternalError:         passing,
	bloberror.OperationTimedOut:     passing,
	bloberror.ServerBusy:            passing,
	bloberror.SystemInUse:           waiting,
	bloberror.CRC64Mismatch:         garbled,
	bloberror.MD5Mismatch:           garbled,

	// The identity is the reason.
	bloberror.AuthenticationFailed:              key,
	bloberror.InvalidAuthenticationInfo:         key,
	bloberror.NoAuthenticationInformation:       key,
	bloberror.AuthorizationFailure:              refused("the firewall or the network rules of the account block this machine, or the identity has no role on the account"),
	bloberror.AuthorizationPermissionMismatch:   refused("give the identity the role Storage Blob Data Contributor on the account, or the shared access signature the permissions rwdlc"),
	bloberror.AuthorizationProtocolMismatch:     sas,
	bloberror.AuthorizationResourceTypeMismatch: sas,
	bloberror.AuthorizationServiceMismatch:      sas,
	bloberror.AuthorizationSourceIPMismatch:     sas,
	// What the settings of the account forbid. The SDK has no names for these codes:
	// https://github.com/microsoft/AzureStorageExplorer/issues/8090
	"KeyBasedAuthenticationNotPermitted": refused("the account allows neither keys nor signatures made with a key: log in with an identity (azblob.New) that has the role " +
		"Storage Blob Data Contributor, or allow shared key access"),
	"PublicAccessNotPermitted":               refused("the request arrived without a login: check the signature in the URL, and for a proxy that removes the Authorization header"),
	"AccountRequiresHttps":                   refused("the account requires https: give an endpoint that begins with https://, or DefaultEndpointsProtocol=https"),
	"TlsVersionNotPermitted":                 refused("the account's minimum TLS version is higher than that of the connection: check for a proxy or a transport with an old TLS version"),
	bloberror.UnauthorizedBlobOverwrite:      refused("the shared access signature lacks the permission w"),
	bloberror.InsufficientAccountPermissions: refused("the account does not allow this operation now: check its state, and whether it is read-only, as a secondary is"),
	bloberror.AccountIsDisabled:              refused("the account is disabled: check its subscription"),
	bloberror.ContainerDisabled:              refused("the container is disabled: check the state of the account"),

	// Something other than the vault has changed the blob.
	bloberror.BlobArchived:             sealed("the blob is in the archive tier: rehydrate it, and exclude the vault's containers from lifecycle rules that archive"),
	bloberror.BlobBeingRehydrated:      sealed("the blob is being rehydrated from the archive tier: wait, and exclude the vault's containers from lifecycle rules that archive"),
	bloberror.BlobImmutableDueToPolicy: protected("an immutability policy or legal hold protects the blob: use containers without them"),
	"BlobImmutableDueToLegalHold":      protected("an immutability policy or legal hold protects the blob: use containers without them"),
	// The service refuses to delete such containers, even empty ones; Azure Resource Manager deletes empty ones:
	// https://github.com/Azure/azure-sdk-for-python/issues/22255, https://github.com/Azure/azure-powershell/issues/22564
	"ContainerImmutableStorageWithVersioningEnabled": undeletable,
	"ContainerImmutabilityPolicyLocked":              undeletable,
	"ContainerHasLegalHold":                          protected("the container has a legal hold: clear it, and use containers without one"),
	bloberror.BlobUsesCustomerSpecifiedEncryption:    sealed("the blob is encrypted with a customer-provided key, which the vault does not have"),
	bloberror.PendingCopyOperation:                   protected("a copy to the blob is in progress: abort it"),
	bloberror.SnapshotsPresent:                       protected("the blob has snapshots, which the vault does not remove: delete them"),
	bloberror.ResourceTypeMismatch:                   refused("the blob has a type that the vault does not write: remove other writers from the vault's containers"),
	bloberror.InvalidBlobType:                        refused("the blob has a type that the vault does not write: remove other writers from the vault's containers"),
	bloberror.LeaseIDMismatchWithBlobOperation:       leased,
	bloberror.LeaseIDMissing:                         leased,
	bloberror.LeaseNotPresentWithBlobOperation:       leased,

	// The account does not support the request.
	bloberror.FeatureVersionMismatch:       refused("the account does not support this operation: try another version with Options.APIVersion"),
	bloberror.InvalidHeaderValue:           otherVersion,
	bloberror.UnsupportedHeader:            otherVersion,
	bloberror.UnsupportedHTTPVerb:          refused("the account does not support this operation: check its kind"),
	bloberror.UnsupportedQueryParameter:    refused("the account does not support this operation: check its kind, or try another version with Options.APIVersion"),
	bloberror.ConditionHeadersNotSupported: refused("the account does not support conditional requests, which the vault needs: check its kind"),
	bloberror.InvalidOperation:             refused("the account does not support this operation: check its kind"),
}
