package emulator

import (
	"bytes"
	"encoding/xml"
	"errors"
	"net/http"
)

// ErrCrashed is the error of every request of a [Transport] whose client has crashed.
var ErrCrashed = errors.New("emulator: the client has crashed")

// The error codes of the service that the emulator uses:
// https://learn.microsoft.com/rest/api/storageservices/blob-service-error-codes
const (
	codeAuthenticationFailed   = "AuthenticationFailed"
	codeBlobAlreadyExists      = "BlobAlreadyExists"
	codeBlobArchived           = "BlobArchived"
	codeBlobNotFound           = "BlobNotFound"
	codeBothDigests            = "BothCrc64AndMd5HeaderPresent"
	codeConditionNotMet        = "ConditionNotMet"
	codeConditionsNotSupported = "ConditionHeadersNotSupported"
	codeContainerAlreadyExists = "ContainerAlreadyExists"
	codeContainerBeingDeleted  = "ContainerBeingDeleted"
	codeContainerNotFound      = "ContainerNotFound"
	codeCrc64Mismatch          = "Crc64Mismatch"
	codeEmptyMetadataKey       = "EmptyMetadataKey"
	codeExceedsMaxBatchCount   = "ExceedsMaxBatchRequestCount"
	codeImmutableByHold        = "BlobImmutableDueToLegalHold"
	codeImmutableByPolicy      = "BlobImmutableDueToPolicy"
	codeInternalError          = "InternalError"
	codeInvalidHeaderValue     = "InvalidHeaderValue"
	codeInvalidInput           = "InvalidInput"
	codeInvalidMd5             = "InvalidMd5"
	codeInvalidMetadata        = "InvalidMetadata"
	codeInvalidQueryParameter  = "InvalidQueryParameterValue"
	codeInvalidRange           = "InvalidRange"
	codeInvalidResourceName    = "InvalidResourceName"
	codeLeaseAlreadyPresent    = "LeaseAlreadyPresent"
	codeLeaseIDMismatch        = "LeaseIdMismatchWithLeaseOperation"
	codeLeaseIDMismatchCont    = "LeaseIdMismatchWithContainerOperation"
	codeLeaseIDMissing         = "LeaseIdMissing"
	codeLeaseIsBreaking        = "LeaseIsBreakingAndCannotBeAcquired"
	codeLeaseIsBroken          = "LeaseIsBrokenAndCannotBeRenewed"
	codeLeaseNotPresent        = "LeaseNotPresentWithLeaseOperation"
	codeLeaseNotPresentBlob    = "LeaseNotPresentWithBlobOperation"
	codeLeaseNotPresentCont    = "LeaseNotPresentWithContainerOperation"
	codeMd5Mismatch            = "Md5Mismatch"
	codeMetadataTooLarge       = "MetadataTooLarge"
	codeMissingContentLength   = "MissingContentLengthHeader"
	codeMissingRequiredHeader  = "MissingRequiredHeader"
	codeMultipleConditions     = "MultipleConditionHeadersNotSupported"
	codeNoAuthentication       = "NoAuthenticationInformation"
	codeNotImplemented         = "NotImplemented"
	codeOperationTimedOut      = "OperationTimedOut"
	codeOutOfRangeInput        = "OutOfRangeInput"
	codeOutOfRangeQuery        = "OutOfRangeQueryParameterValue"
	codeRequestBodyTooLarge    = "RequestBodyTooLarge"
	codeResourceNotFound       = "ResourceNotFound"
	codeNotOnDirectory         = "OperationNotSupportedOnDirectory"
	codeResourceTypeMismatch   = "ResourceTypeMismatch"
	codeServerBusy             = "ServerBusy"
	codeUnsatisfiableCondition = "UnsatisfiableCondition"
	codeUnsupportedHTTPVerb    = "UnsupportedHttpVerb"
	codeUnsupportedHeader      = "UnsupportedHeader"
	codeUnsupportedQueryParam  = "UnsupportedQueryParameter"
	codeBlobOverwrite          = "UnauthorizedBlobOverwrite"
	codeInvalidAuthentication  = "InvalidAuthenticationInfo"
	codePermissionMismatch     = "AuthorizationPermissionMismatch"
	codeProtocolMismatch       = "AuthorizationProtocolMismatch"
	codeAuthorizedResources    = "AuthorizationResourceTypeMismatch"
	codeServiceMismatch        = "AuthorizationServiceMismatch"
	codeInsufficientAccount    = "InsufficientAccountPermissions"
	codeForbidden              = "ForbiddenByTest" // not a code of the service; see Server.Forbid
)

// explanations holds the status and the message of each code.
var explanations = map[string]struct {
	status  int
	message string
}{
	codeAuthenticationFailed:   {http.StatusForbidden, "Server failed to authenticate the request. Make sure the value of Authorization header is formed correctly including the signature."},
	codeBlobAlreadyExists:      {http.StatusConflict, "The specified blob already exists."},
	codeBlobArchived:           {http.StatusConflict, "This operation is not permitted on an archived blob."},
	codeBlobNotFound:           {http.StatusNotFound, "The specified blob does not exist."},
	codeBothDigests:            {http.StatusBadRequest, "Both CRC64 and MD5 headers are present; only one of them may be."},
	codeConditionNotMet:        {http.StatusPreconditionFailed, "The condition specified using HTTP conditional header(s) is not met."},
	codeConditionsNotSupported: {http.StatusBadRequest, "Condition headers are not supported."},
	codeContainerAlreadyExists: {http.StatusConflict, "The specified container already exists."},
	codeContainerBeingDeleted:  {http.StatusConflict, "The specified container is being deleted. Try operation later."},
	codeContainerNotFound:      {http.StatusNotFound, "The specified container does not exist."},
	codeCrc64Mismatch:          {http.StatusBadRequest, "The CRC64 value specified in the request did not match with the CRC64 value calculated by the server."},
	codeEmptyMetadataKey:       {http.StatusBadRequest, "The key for one of the metadata key-value pairs is empty."},
	codeExceedsMaxBatchCount:   {http.StatusBadRequest, "The batch operation exceeds maximum number of allowed subrequests."},
	codeImmutableByHold:        {http.StatusConflict, "This operation is not permitted as the blob is immutable due to one or more legal holds."},
	codeImmutableByPolicy:      {http.StatusConflict, "This operation is not permitted as the blob is immutable due to a policy."},
	codeInternalError:          {http.StatusInternalServerError, "Server encountered an internal error. Please try again after some time."},
	codeInvalidHeaderValue:     {http.StatusBadRequest, "The value for one of the HTTP headers is not in the correct format."},
	codeInvalidInput:           {http.StatusBadRequest, "One of the request inputs is not valid."},
	codeInvalidMd5:             {http.StatusBadRequest, "The MD5 value specified in the request is invalid. The MD5 value must be 128 bits and Base64-encoded."},
	codeInvalidMetadata:        {http.StatusBadRequest, "The metadata specified is invalid. It has characters that are not permitted."},
	codeInvalidQueryParameter:  {http.StatusBadRequest, "Value for one of the query parameters specified in the request URI is invalid."},
	codeInvalidRange:           {http.StatusRequestedRangeNotSatisfiable, "The range specified is invalid for the current size of the resource."},
	codeInvalidResourceName:    {http.StatusBadRequest, "The specified resource name contains invalid characters."},
	codeLeaseAlreadyPresent:    {http.StatusConflict, "There is already a lease present."},
	codeLeaseIDMismatch:        {http.StatusConflict, "The lease ID specified did not match the lease ID for the container."},
	codeLeaseIDMismatchCont:    {http.StatusPreconditionFailed, "The lease ID specified did not match the lease ID for the container."},
	codeLeaseIDMissing:         {http.StatusPreconditionFailed, "There is currently a lease and no lease ID was specified in the request."},
	codeLeaseIsBreaking:        {http.StatusConflict, "The lease ID matched, but the lease is currently in breaking state and cannot be acquired until it is broken."},
	codeLeaseIsBroken:          {http.StatusConflict, "The lease ID matched, but the lease has been broken explicitly and cannot be renewed."},
	codeLeaseNotPresent:        {http.StatusConflict, "There is currently no lease on the container."},
	codeLeaseNotPresentBlob:    {http.StatusPreconditionFailed, "There is currently no lease on the blob."},
	codeLeaseNotPresentCont:    {http.StatusPreconditionFailed, "There is currently no lease on the container."},
	codeMd5Mismatch:            {http.StatusBadRequest, "The MD5 value specified in the request did not match with the MD5 value calculated by the server."},
	codeMetadataTooLarge:       {http.StatusBadRequest, "The size of the specified metadata exceeds the maximum size permitted."},
	codeMissingContentLength:   {http.StatusLengthRequired, "The Content-Length header was not specified."},
	codeMissingRequiredHeader:  {http.StatusBadRequest, "An HTTP header that's mandatory for this request is not specified."},
	codeMultipleConditions:     {http.StatusBadRequest, "Multiple condition headers are not supported."},
	codeNoAuthentication:       {http.StatusUnauthorized, "Server failed to authenticate the request. Please refer to the information in the www-authenticate header."},
	codeNotImplemented:         {http.StatusNotImplemented, "The emulator does not implement the requested operation."},
	codeOperationTimedOut:      {http.StatusInternalServerError, "The operation could not be completed within the permitted time."},
	codeOutOfRangeInput:        {http.StatusBadRequest, "One of the request inputs is out of range."},
	codeOutOfRangeQuery:        {http.StatusBadRequest, "One of the query parameters specified in the request URI is outside the permissible range."},
	codeRequestBodyTooLarge:    {http.StatusRequestEntityTooLarge, "The request body is too large and exceeds the maximum permissible limit."},
	codeResourceNotFound:       {http.StatusNotFound, "The specified resource does not exist."},
	codeNotOnDirectory:         {http.StatusBadRequest, "The requested operation is not supported on a directory."},
	codeResourceTypeMismatch:   {http.StatusConflict, "The specified resource type does not match the type of the existing resource."},
	codeServerBusy:             {http.StatusServiceUnavailable, "The server is busy."},
	codeUnsatisfiableCondition: {http.StatusBadRequest, "The request includes an unsatisfiable condition for this operation."},
	codeUnsupportedHTTPVerb:    {http.StatusMethodNotAllowed, "The resource doesn't support the specified HTTP verb."},
	codeUnsupportedHeader:      {http.StatusBadRequest, "One of the headers specified in the request is not supported."},
	codeUnsupportedQueryParam:  {http.StatusBadRequest, "One of the query parameters specified in the request URI is not supported."},
	codeBlobOverwrite:          {http.StatusForbidden, "This request is not authorized to perform blob overwrites."},
	codeInvalidAuthentication:  {http.StatusUnauthorized, "Server failed to authenticate the request. Please refer to the information in the www-authenticate header."},
	codePermissionMismatch:     {http.StatusForbidden, "This request is not authorized to perform this operation using this permission."},
	codeProtocolMismatch:       {http.StatusForbidden, "This request is not authorized to perform this operation using this protocol."},
	codeAuthorizedResources:    {http.StatusForbidden, "This request is not authorized to perform this operation using this resource type."},
	codeServiceMismatch:        {http.StatusForbidden, "This request is not authorized to perform this operation using this service."},
	codeInsufficientAccount:    {http.StatusForbidden, "Write operations are not allowed."},
	codeForbidden:              {http.StatusBadRequest, "The test forbids this request."},
}

// explain returns the status and the message of a code. The status of an unknown code, which can only come
// from [Answer], is 0.
func explain(code string) (status int, message string) {
	if e, ok := explanations[code]; ok {
		return e.status, e.message
	}
	return 0, "The request failed."
}

// fail returns the answer for a code of the table.
func fail(code string) *answer { return failWith(code, "") }

// failWith is fail with a sentence that explains what is wrong.
func failWith(code, detail string) *answer {
	status, message := explain(code)
	if detail != "" {
		message += " " + detail
	}
	return errorAnswer(status, code, message)
}

// notDurable returns the answer to a write that could not be made durable.
func notDurable(err error) *answer { return failWith(codeInternalError, err.Error()) }

// errorAnswer returns an error in the form of the service.
func errorAnswer(status int, code, message string) *answer {
	return detailedAnswer(status, code, message, "")
}

// failAuthentication is fail with the detail that the service gives on failed authentications.
func failAuthentication(code, detail string) *answer {
	status, message := explain(code)
	return detailedAnswer(status, code, message, detail)
}

func detailedAnswer(status int, code, message, detail string) *answer {
	var body bytes.Buffer
	body.WriteString(xmlProlog + "<Error><Code>")
	escapeXML(&body, code)
	body.WriteString("</Code><Message>")
	escapeXML(&body, message)
	body.WriteString("</Message>")
	if detail != "" {
		body.WriteString("<AuthenticationErrorDetail>")
		escapeXML(&body, detail)
		body.WriteString("</AuthenticationErrorDetail>")
	}
	body.WriteString("</Error>")
	a := newAnswer(status)
	a.code = code
	a.header.Set("X-Ms-Error-Code", code)
	a.header.Set("Content-Type", "application/xml")
	a.body = body.Bytes()
	return a
}

// notModified returns the answer to a read whose condition says that the client already has the blob. It has
// no body.
func notModified() *answer {
	a := newAnswer(http.StatusNotModified)
	a.code = codeConditionNotMet
	a.header.Set("X-Ms-Error-Code", codeConditionNotMet)
	return a
}

const xmlProlog = `<?xml version="1.0" encoding="utf-8"?>`

// escapeXML writes text as the content of an XML element. Characters that XML can't represent become U+FFFD.
func escapeXML(w *bytes.Buffer, text string) {
	// Writes to a bytes.Buffer don't fail.
	_ = xml.EscapeText(w, []byte(text))
}
