package emulator

import (
	"bytes"
	"encoding/xml"
	"errors"
	"net/http"
)

// ErrCrashed is what every request of a [Transport] fails with once it crashed.
var ErrCrashed = errors.New("emulator: the client has crashed")

// The error codes that the emulator answers with. They are the service's own:
// https://learn.microsoft.com/rest/api/storageservices/blob-service-error-codes
const (
	codeAuthenticationFailed   = "AuthenticationFailed"
	codeBlobAlreadyExists      = "BlobAlreadyExists"
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
	codeInternalError          = "InternalError"
	codeInvalidHeaderValue     = "InvalidHeaderValue"
	codeInvalidInput           = "InvalidInput"
	codeInvalidMd5             = "InvalidMd5"
	codeInvalidMetadata        = "InvalidMetadata"
	codeInvalidQueryParameter  = "InvalidQueryParameterValue"
	codeInvalidRange           = "InvalidRange"
	codeInvalidResourceName    = "InvalidResourceName"
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
	codeServerBusy             = "ServerBusy"
	codeUnsatisfiableCondition = "UnsatisfiableCondition"
	codeUnsupportedHTTPVerb    = "UnsupportedHttpVerb"
	codeUnsupportedHeader      = "UnsupportedHeader"
	codeUnsupportedQueryParam  = "UnsupportedQueryParameter"
	codeForbidden              = "ForbiddenByTest" // not the service's: see Server.Forbid
)

// explain returns the status that goes with a code, and the message. A code that
// is not in the table is the caller's own (see [Answer]); status 0 says so.
func explain(code string) (status int, message string) {
	switch code {
	case codeAuthenticationFailed:
		return http.StatusForbidden, "Server failed to authenticate the request. Make sure the value of Authorization header is formed correctly including the signature."
	case codeBlobAlreadyExists:
		return http.StatusConflict, "The specified blob already exists."
	case codeBlobNotFound:
		return http.StatusNotFound, "The specified blob does not exist."
	case codeBothDigests:
		return http.StatusBadRequest, "Both CRC64 and MD5 headers are present; only one of them may be."
	case codeConditionNotMet:
		return http.StatusPreconditionFailed, "The condition specified using HTTP conditional header(s) is not met."
	case codeConditionsNotSupported:
		return http.StatusBadRequest, "Condition headers are not supported."
	case codeContainerAlreadyExists:
		return http.StatusConflict, "The specified container already exists."
	case codeContainerBeingDeleted:
		return http.StatusConflict, "The specified container is being deleted. Try operation later."
	case codeContainerNotFound:
		return http.StatusNotFound, "The specified container does not exist."
	case codeCrc64Mismatch:
		return http.StatusBadRequest, "The CRC64 value specified in the request did not match with the CRC64 value calculated by the server."
	case codeEmptyMetadataKey:
		return http.StatusBadRequest, "The key for one of the metadata key-value pairs is empty."
	case codeExceedsMaxBatchCount:
		return http.StatusBadRequest, "The batch operation exceeds maximum number of allowed subrequests."
	case codeInternalError:
		return http.StatusInternalServerError, "Server encountered an internal error. Please try again after some time."
	case codeInvalidHeaderValue:
		return http.StatusBadRequest, "The value for one of the HTTP headers is not in the correct format."
	case codeInvalidInput:
		return http.StatusBadRequest, "One of the request inputs is not valid."
	case codeInvalidMd5:
		return http.StatusBadRequest, "The MD5 value specified in the request is invalid. The MD5 value must be 128 bits and Base64-encoded."
	case codeInvalidMetadata:
		return http.StatusBadRequest, "The metadata specified is invalid. It has characters that are not permitted."
	case codeInvalidQueryParameter:
		return http.StatusBadRequest, "Value for one of the query parameters specified in the request URI is invalid."
	case codeInvalidRange:
		return http.StatusRequestedRangeNotSatisfiable, "The range specified is invalid for the current size of the resource."
	case codeInvalidResourceName:
		return http.StatusBadRequest, "The specified resource name contains invalid characters."
	case codeLeaseNotPresentBlob:
		return http.StatusPreconditionFailed, "There is currently no lease on the blob."
	case codeLeaseNotPresentCont:
		return http.StatusPreconditionFailed, "There is currently no lease on the container."
	case codeMd5Mismatch:
		return http.StatusBadRequest, "The MD5 value specified in the request did not match with the MD5 value calculated by the server."
	case codeMetadataTooLarge:
		return http.StatusBadRequest, "The size of the specified metadata exceeds the maximum size permitted."
	case codeMissingContentLength:
		return http.StatusLengthRequired, "The Content-Length header was not specified."
	case codeMissingRequiredHeader:
		return http.StatusBadRequest, "An HTTP header that's mandatory for this request is not specified."
	case codeMultipleConditions:
		return http.StatusBadRequest, "Multiple condition headers are not supported."
	case codeNoAuthentication:
		return http.StatusUnauthorized, "Server failed to authenticate the request. Please refer to the information in the www-authenticate header."
	case codeNotImplemented:
		return http.StatusNotImplemented, "The emulator does not implement the requested operation."
	case codeOperationTimedOut:
		return http.StatusInternalServerError, "The operation could not be completed within the permitted time."
	case codeOutOfRangeInput:
		return http.StatusBadRequest, "One of the request inputs is out of range."
	case codeOutOfRangeQuery:
		return http.StatusBadRequest, "One of the query parameters specified in the request URI is outside the permissible range."
	case codeRequestBodyTooLarge:
		return http.StatusRequestEntityTooLarge, "The request body is too large and exceeds the maximum permissible limit."
	case codeResourceNotFound:
		return http.StatusNotFound, "The specified resource does not exist."
	case codeServerBusy:
		return http.StatusServiceUnavailable, "The server is busy."
	case codeUnsatisfiableCondition:
		return http.StatusBadRequest, "The request includes an unsatisfiable condition for this operation."
	case codeUnsupportedHTTPVerb:
		return http.StatusMethodNotAllowed, "The resource doesn't support the specified HTTP verb."
	case codeUnsupportedHeader:
		return http.StatusBadRequest, "One of the headers specified in the request is not supported."
	case codeUnsupportedQueryParam:
		return http.StatusBadRequest, "One of the query parameters specified in the request URI is not supported."
	case codeForbidden:
		return http.StatusBadRequest, "The test forbids this request."
	default:
		return 0, "The request failed."
	}
}

// fail answers with an error of the table.
func fail(code string) *answer { return failWith(code, "") }

// failWith is fail with a sentence on what exactly is wrong.
func failWith(code, detail string) *answer {
	status, message := explain(code)
	if detail != "" {
		message += " " + detail
	}
	return errorAnswer(status, code, message)
}

// notDurable answers a write whose effect could not be kept.
func notDurable(err error) *answer { return failWith(codeInternalError, err.Error()) }

// errorAnswer is an error in the service's form.
func errorAnswer(status int, code, message string) *answer {
	var body bytes.Buffer
	body.WriteString(xmlProlog + "<Error><Code>")
	escapeXML(&body, code)
	body.WriteString("</Code><Message>")
	escapeXML(&body, message)
	body.WriteString("</Message></Error>")
	a := newAnswer(status)
	a.code = code
	a.header.Set("X-Ms-Error-Code", code)
	a.header.Set("Content-Type", "application/xml")
	a.body = body.Bytes()
	return a
}

// notModified is the answer to a read whose condition says that the client has
// the blob already. It has no body.
func notModified() *answer {
	a := newAnswer(http.StatusNotModified)
	a.code = codeConditionNotMet
	a.header.Set("X-Ms-Error-Code", codeConditionNotMet)
	return a
}

const xmlProlog = `<?xml version="1.0" encoding="utf-8"?>`

// escapeXML writes text as the content of an XML element. What XML can't carry
// becomes U+FFFD.
func escapeXML(w *bytes.Buffer, text string) {
	// A bytes.Buffer does not fail.
	_ = xml.EscapeText(w, []byte(text))
}
