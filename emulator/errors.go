package emulator

import (
	"bytes"
	"encoding/xml"
	"errors"
	"net/http"
)

// ErrCrashed is the error of every request of a [Transport] whose client has crashed.
var ErrCrashed = errors.New("emulator: the client has crashed")

// explanations holds the status and the message of each code of the service that the emulator uses:
// https://learn.microsoft.com/rest/api/storageservices/blob-service-error-codes
var explanations = map[string]struct {
	status  int
	message string
}{
	"AuthenticationFailed":                  {http.StatusForbidden, "Server failed to authenticate the request. Make sure the value of Authorization header is formed correctly including the signature."},
	"BlobAlreadyExists":                     {http.StatusConflict, "The specified blob already exists."},
	"BlobArchived":                          {http.StatusConflict, "This operation is not permitted on an archived blob."},
	"BlobNotFound":                          {http.StatusNotFound, "The specified blob does not exist."},
	"BothCrc64AndMd5HeaderPresent":          {http.StatusBadRequest, "Both CRC64 and MD5 headers are present; only one of them may be."},
	"ConditionNotMet":                       {http.StatusPreconditionFailed, "The condition specified using HTTP conditional header(s) is not met."},
	"ConditionHeadersNotSupported":          {http.StatusBadRequest, "Condition headers are not supported."},
	"ContainerAlreadyExists":                {http.StatusConflict, "The specified container already exists."},
	"ContainerBeingDeleted":                 {http.StatusConflict, "The specified container is being deleted. Try operation later."},
	"ContainerNotFound":                     {http.StatusNotFound, "The specified container does not exist."},
	"Crc64Mismatch":                         {http.StatusBadRequest, "The CRC64 value specified in the request did not match with the CRC64 value calculated by the server."},
	"EmptyMetadataKey":                      {http.StatusBadRequest, "The key for one of the metadata key-value pairs is empty."},
	"ExceedsMaxBatchRequestCount":           {http.StatusBadRequest, "The batch operation exceeds maximum number of allowed subrequests."},
	"BlobImmutableDueToLegalHold":           {http.StatusConflict, "This operation is not permitted as the blob is immutable due to one or more legal holds."},
	"BlobImmutableDueToPolicy":              {http.StatusConflict, "This operation is not permitted as the blob is immutable due to a policy."},
	"InternalError":                         {http.StatusInternalServerError, "Server encountered an internal error. Please try again after some time."},
	"InvalidHeaderValue":                    {http.StatusBadRequest, "The value for one of the HTTP headers is not in the correct format."},
	"InvalidInput":                          {http.StatusBadRequest, "One of the request inputs is not valid."},
	"InvalidMd5":                            {http.StatusBadRequest, "The MD5 value specified in the request is invalid. The MD5 value must be 128 bits and Base64-encoded."},
	"InvalidMetadata":                       {http.StatusBadRequest, "The metadata specified is invalid. It has characters that are not permitted."},
	"InvalidQueryParameterValue":            {http.StatusBadRequest, "Value for one of the query parameters specified in the request URI is invalid."},
	"InvalidRange":                          {http.StatusRequestedRangeNotSatisfiable, "The range specified is invalid for the current size of the resource."},
	"InvalidResourceName":                   {http.StatusBadRequest, "The specified resource name contains invalid characters."},
	"LeaseAlreadyPresent":                   {http.StatusConflict, "There is already a lease present."},
	"LeaseIdMismatchWithLeaseOperation":     {http.StatusConflict, "The lease ID specified did not match the lease ID for the container."},
	"LeaseIdMismatchWithContainerOperation": {http.StatusPreconditionFailed, "The lease ID specified did not match the lease ID for the container."},
	"LeaseIdMissing":                        {http.StatusPreconditionFailed, "There is currently a lease and no lease ID was specified in the request."},
	"LeaseIsBreakingAndCannotBeAcquired":    {http.StatusConflict, "The lease ID matched, but the lease is currently in breaking state and cannot be acquired until it is broken."},
	"LeaseIsBrokenAndCannotBeRenewed":       {http.StatusConflict, "The lease ID matched, but the lease has been broken explicitly and cannot be renewed."},
	"LeaseNotPresentWithLeaseOperation":     {http.StatusConflict, "There is currently no lease on the container."},
	"LeaseNotPresentWithBlobOperation":      {http.StatusPreconditionFailed, "There is currently no lease on the blob."},
	"LeaseNotPresentWithContainerOperation": {http.StatusPreconditionFailed, "There is currently no lease on the container."},
	"Md5Mismatch":                           {http.StatusBadRequest, "The MD5 value specified in the request did not match with the MD5 value calculated by the server."},
	"MetadataTooLarge":                      {http.StatusBadRequest, "The size of the specified metadata exceeds the maximum size permitted."},
	"MissingContentLengthHeader":            {http.StatusLengthRequired, "The Content-Length header was not specified."},
	"MissingRequiredHeader":                 {http.StatusBadRequest, "An HTTP header that's mandatory for this request is not specified."},
	"MultipleConditionHeadersNotSupported":  {http.StatusBadRequest, "Multiple condition headers are not supported."},
	"NoAuthenticationInformation":           {http.StatusUnauthorized, "Server failed to authenticate the request. Please refer to the information in the www-authenticate header."},
	"NotImplemented":                        {http.StatusNotImplemented, "The emulator does not implement the requested operation."},
	"OperationTimedOut":                     {http.StatusInternalServerError, "The operation could not be completed within the permitted time."},
	"OutOfRangeInput":                       {http.StatusBadRequest, "One of the request inputs is out of range."},
	"OutOfRangeQueryParameterValue":         {http.StatusBadRequest, "One of the query parameters specified in the request URI is outside the permissible range."},
	"RequestBodyTooLarge":                   {http.StatusRequestEntityTooLarge, "The request body is too large and exceeds the maximum permissible limit."},
	"ResourceNotFound":                      {http.StatusNotFound, "The specified resource does not exist."},
	"OperationNotSupportedOnDirectory":      {http.StatusBadRequest, "The requested operation is not supported on a directory."},
	"ResourceTypeMismatch":                  {http.StatusConflict, "The specified resource type does not match the type of the existing resource."},
	"ServerBusy":                            {http.StatusServiceUnavailable, "The server is busy."},
	"UnsatisfiableCondition":                {http.StatusBadRequest, "The request includes an unsatisfiable condition for this operation."},
	"UnsupportedHttpVerb":                   {http.StatusMethodNotAllowed, "The resource doesn't support the specified HTTP verb."},
	"UnsupportedHeader":                     {http.StatusBadRequest, "One of the headers specified in the request is not supported."},
	"UnsupportedQueryParameter":             {http.StatusBadRequest, "One of the query parameters specified in the request URI is not supported."},
	"UnauthorizedBlobOverwrite":             {http.StatusForbidden, "This request is not authorized to perform blob overwrites."},
	"InvalidAuthenticationInfo":             {http.StatusUnauthorized, "Server failed to authenticate the request. Please refer to the information in the www-authenticate header."},
	"AuthorizationPermissionMismatch":       {http.StatusForbidden, "This request is not authorized to perform this operation using this permission."},
	"AuthorizationProtocolMismatch":         {http.StatusForbidden, "This request is not authorized to perform this operation using this protocol."},
	"AuthorizationResourceTypeMismatch":     {http.StatusForbidden, "This request is not authorized to perform this operation using this resource type."},
	"AuthorizationServiceMismatch":          {http.StatusForbidden, "This request is not authorized to perform this operation using this service."},
	"InsufficientAccountPermissions":        {http.StatusForbidden, "Write operations are not allowed."},
	"ForbiddenByTest":                       {http.StatusBadRequest, "The test forbids this request."},
}

// explain returns the status and the message of a code. The status of an unknown code, which can only come
// from [Answer], is 0.
func explain(code string) (status int, message string) {
	if e, ok := explanations[code]; ok {
		return e.status, e.message
	}
	return 0, "The request failed."
}

// fail returns the answer for a code of the table. It panics for another one.
func fail(code string) *answer { return failWith(code, "") }

// failWith is fail with a sentence that explains what is wrong.
func failWith(code, detail string) *answer {
	status, message := explain(code)
	if status == 0 {
		panic("emulator: no explanation of " + code)
	}
	if detail != "" {
		message += " " + detail
	}
	return errorAnswer(status, code, message, "")
}

// failAuthentication is fail with the detail that the service gives on failed authentications.
func failAuthentication(code, detail string) *answer {
	status, message := explain(code)
	return errorAnswer(status, code, message, detail)
}

// errorAnswer returns an error in the form of the service. The detail is that of a failed authentication, or empty.
func errorAnswer(status int, code, message, detail string) *answer {
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
	a.code = "ConditionNotMet"
	a.header.Set("X-Ms-Error-Code", "ConditionNotMet")
	return a
}

const xmlProlog = `<?xml version="1.0" encoding="utf-8"?>`

// escapeXML writes text as the content of an XML element. Characters that XML can't represent become U+FFFD.
func escapeXML(w *bytes.Buffer, text string) {
	// Writes to a bytes.Buffer don't fail.
	_ = xml.EscapeText(w, []byte(text))
}
