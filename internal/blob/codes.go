package blob

import "github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"

// meaning is what a documented error code says of a request, and what to do about it.
type meaning struct {
	verdict
	remedy string
}

func refused(remedy string) meaning { return meaning{verdict{reason: Refused}, remedy} }

// The meanings of several codes.
var (
	mismatch = meaning{verdict: verdict{reason: Mismatch}}
	// passing is a fault of the service's that may come after the effect.
	passing = meaning{verdict: verdict{reason: Unreachable, again: true, applied: true}}
	// waiting is a state that ends by itself; the request has had no effect.
	waiting = meaning{verdict: verdict{reason: Unreachable, again: true}}
	garbled = meaning{verdict: verdict{reason: Damaged, again: true, once: true}}

	// unsent is a refusal of requests that the vault does not send: of page and append blobs, of blocks, copies, tiers and
	// leases, or malformed ones.
	unsent = refused("the vault sends no such request: look for what changes requests on their way, such as a proxy")
	leased = refused("somebody holds a lease on it, which the vault never does: break the lease")
	sas    = refused("the shared access signature does not allow it: it needs the blob service, the resource types service, container and object, " +
		"the permissions rwdlc, and this address and protocol")
	key = refused("check the account key, shared access signature or credential, and this machine's clock")
)

// meanings has all the codes of bloberror. A code decides alone, whatever status comes with it below 500.
var meanings = map[bloberror.Code]meaning{
	// A condition that does not hold.
	bloberror.BlobAlreadyExists:      mismatch,
	bloberror.ConditionNotMet:        mismatch,
	bloberror.ContainerAlreadyExists: mismatch,
	bloberror.ResourceAlreadyExists:  mismatch,
	bloberror.TargetConditionNotMet:  mismatch,

	// Nothing there.
	bloberror.BlobNotFound:      {verdict: verdict{reason: Absent}},
	bloberror.ContainerNotFound: {verdict: verdict{reason: AbsentContainer}},
	bloberror.ResourceNotFound:  {verdict: verdict{reason: Absent}},

	// What passes.
	bloberror.AccountBeingCreated:   waiting,
	bloberror.ContainerBeingDeleted: waiting,
	bloberror.InternalError:         passing,
	bloberror.OperationTimedOut:     passing,
	bloberror.ServerBusy:            passing,
	bloberror.SystemInUse:           waiting,
	bloberror.CRC64Mismatch:         garbled,
	bloberror.MD5Mismatch:           garbled,

	// Who asks.
	bloberror.AuthenticationFailed:              key,
	bloberror.InvalidAuthenticationInfo:         key,
	bloberror.NoAuthenticationInformation:       key,
	bloberror.AuthorizationFailure:              refused("the account's firewall or network rules keep this machine out, or the identity has no role on the account"),
	bloberror.AuthorizationPermissionMismatch:   refused("give the identity the role Storage Blob Data Contributor on the account, or the shared access signature the permissions rwdlc"),
	bloberror.AuthorizationProtocolMismatch:     sas,
	bloberror.AuthorizationResourceTypeMismatch: sas,
	bloberror.AuthorizationServiceMismatch:      sas,
	bloberror.AuthorizationSourceIPMismatch:     sas,
	bloberror.UnauthorizedBlobOverwrite:         refused("the shared access signature lacks the permission w"),
	bloberror.InsufficientAccountPermissions:    refused("the account does not allow this operation now: look at its state, and whether it is read only"),
	bloberror.AccountIsDisabled:                 refused("the account is disabled: look at its subscription"),
	bloberror.ContainerDisabled:                 refused("the container is disabled: look at the account's state"),

	// What is done to a blob that the vault does not do.
	bloberror.BlobArchived:                        refused("the blob is in the archive tier: rehydrate it, and keep lifecycle rules from archiving the vault's containers"),
	bloberror.BlobBeingRehydrated:                 refused("the blob is coming back from the archive tier: wait until it has, and keep lifecycle rules from archiving the vault's containers"),
	bloberror.BlobImmutableDueToPolicy:            refused("an immutability policy or legal hold protects it: a vault can't work on such containers"),
	bloberror.BlobUsesCustomerSpecifiedEncryption: refused("it is encrypted with a key of somebody else's, which the vault does not have"),
	bloberror.PendingCopyOperation:                refused("somebody copies to it: abort the copy"),
	bloberror.SnapshotsPresent:                    refused("the blob has snapshots, which the vault does not remove: delete them"),
	bloberror.ResourceTypeMismatch:                refused("it is of another kind than the vault writes: remove what else writes to the vault's containers"),
	bloberror.InvalidBlobType:                     refused("it is of another kind than the vault writes: remove what else writes to the vault's containers"),
	bloberror.LeaseAlreadyPresent:                 leased,
	bloberror.LeaseIDMismatchWithBlobOperation:    leased,
	bloberror.LeaseIDMissing:                      leased,
	bloberror.LeaseLost:                           leased,
	bloberror.LeaseNotPresentWithBlobOperation:    leased,

	// What the account does not know.
	bloberror.FeatureVersionMismatch:       refused("the account does not know this operation: ask for another version by WithServiceVersion"),
	bloberror.InvalidHeaderValue:           refused("the service may not know the version that is asked for: ask for another one by WithServiceVersion"),
	bloberror.UnsupportedHeader:            refused("the service may not know the version that is asked for: ask for another one by WithServiceVersion"),
	bloberror.UnsupportedHTTPVerb:          refused("the account does not know this operation: look at its kind"),
	bloberror.UnsupportedQueryParameter:    refused("the account does not know this operation: look at its kind, and ask for another version by WithServiceVersion"),
	bloberror.ConditionHeadersNotSupported: refused("the account does not know conditions, without which a vault can't work: look at its kind"),
	bloberror.InvalidOperation:             refused("the account does not know this operation: look at its kind"),

	// What the vault does not send.
	bloberror.AccountAlreadyExists:                       unsent,
	bloberror.AppendPositionConditionNotMet:              unsent,
	bloberror.BlobNotArchived:                            unsent,
	bloberror.BlobOverwritten:                            unsent,
	bloberror.BlobTierInadequateForContentLength:         unsent,
	bloberror.BlockCountExceedsLimit:                     unsent,
	bloberror.BlockListTooLong:                           unsent,
	bloberror.CannotChangeToLowerTier:                    unsent,
	bloberror.CannotVerifyCopySource:                     unsent,
	bloberror.ContentLengthLargerThanTierLimit:           unsent,
	bloberror.CopyAcrossAccountsNotSupported:             unsent,
	bloberror.CopyIDMismatch:                             unsent,
	bloberror.EmptyMetadataKey:                           unsent,
	bloberror.ImmutabilityPolicyDeleteOnLockedPolicy:     unsent,
	bloberror.IncrementalCopyBlobMismatch:                unsent,
	"IncrementalCopyOfEralierVersionSnapshotNotAllowed":  unsent,
	bloberror.IncrementalCopyOfEarlierSnapshotNotAllowed: unsent,
	bloberror.IncrementalCopySourceMustBeSnapshot:        unsent,
	bloberror.InfiniteLeaseDurationRequired:              unsent,
	bloberror.InvalidBlobOrBlock:                         unsent,
	bloberror.InvalidBlobTier:                            unsent,
	bloberror.InvalidBlockID:                             unsent,
	bloberror.InvalidBlockList:                           unsent,
	bloberror.InvalidHTTPVerb:                            unsent,
	bloberror.InvalidInput:                               unsent,
	bloberror.InvalidMD5:                                 unsent,
	bloberror.InvalidMetadata:                            unsent,
	bloberror.InvalidPageRange:                           unsent,
	bloberror.InvalidQueryParameterValue:                 unsent,
	bloberror.InvalidRange:                               unsent,
	bloberror.InvalidResourceName:                        unsent,
	bloberror.InvalidSourceBlobType:                      unsent,
	bloberror.InvalidSourceBlobURL:                       unsent,
	bloberror.InvalidURI:                                 unsent,
	bloberror.InvalidVersionForPageBlobOperation:         unsent,
	bloberror.InvalidXMLDocument:                         unsent,
	bloberror.InvalidXMLNodeValue:                        unsent,
	bloberror.LeaseAlreadyBroken:                         unsent,
	bloberror.LeaseIDMismatchWithContainerOperation:      unsent,
	bloberror.LeaseIDMismatchWithLeaseOperation:          unsent,
	bloberror.LeaseIsBreakingAndCannotBeAcquired:         unsent,
	bloberror.LeaseIsBreakingAndCannotBeChanged:          unsent,
	bloberror.LeaseIsBrokenAndCannotBeRenewed:            unsent,
	bloberror.LeaseNotPresentWithContainerOperation:      unsent,
	bloberror.LeaseNotPresentWithLeaseOperation:          unsent,
	bloberror.MaxBlobSizeConditionNotMet:                 unsent,
	bloberror.MetadataTooLarge:                           unsent,
	bloberror.MissingContentLengthHeader:                 unsent,
	bloberror.MissingRequiredHeader:                      unsent,
	bloberror.MissingRequiredQueryParameter:              unsent,
	bloberror.MissingRequiredXMLNode:                     unsent,
	bloberror.MultipleConditionHeadersNotSupported:       unsent,
	bloberror.NoPendingCopyOperation:                     unsent,
	bloberror.OperationNotAllowedOnIncrementalCopyBlob:   unsent,
	bloberror.OperationNotAllowedOnRootBlob:              unsent,
	bloberror.OutOfRangeInput:                            unsent,
	bloberror.OutOfRangeQueryParameterValue:              unsent,
	bloberror.PreviousSnapshotCannotBeNewer:              unsent,
	bloberror.PreviousSnapshotNotFound:                   unsent,
	bloberror.PreviousSnapshotOperationNotSupported:      unsent,
	bloberror.RequestBodyTooLarge:                        unsent,
	bloberror.RequestURLFailedToParse:                    unsent,
	bloberror.SequenceNumberConditionNotMet:              unsent,
	bloberror.SequenceNumberIncrementTooLarge:            unsent,
	bloberror.SnapshotCountExceeded:                      unsent,
	bloberror.SnapshotOperationRateExceeded:              unsent,
	bloberror.SourceConditionNotMet:                      unsent,
	bloberror.UnsupportedXMLNode:                         unsent,
}
