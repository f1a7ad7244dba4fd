package emulator

import "net/http"

// Op names an operation of the service.
type Op string

// The operations of the emulator. A [Rule] matches them and a [Request] in the log names them.
const (
	ListContainers         Op = "ListContainers"
	GetAccountInfo         Op = "GetAccountInfo"
	GetServiceProperties   Op = "GetServiceProperties"
	GetServiceStats        Op = "GetServiceStats" // at the secondary
	CreateContainer        Op = "CreateContainer"
	DeleteContainer        Op = "DeleteContainer"
	GetContainerProperties Op = "GetContainerProperties" // GET and HEAD
	SetContainerMetadata   Op = "SetContainerMetadata"
	LeaseContainer         Op = "LeaseContainer"
	ListBlobs              Op = "ListBlobs" // flat and by delimiter
	PutBlob                Op = "PutBlob"
	GetBlob                Op = "GetBlob"
	HeadBlob               Op = "HeadBlob"        // Get Blob Properties
	GetBlobMetadata        Op = "GetBlobMetadata" // GET and HEAD
	SetBlobMetadata        Op = "SetBlobMetadata"
	DeleteBlob             Op = "DeleteBlob"
	UndeleteBlob           Op = "UndeleteBlob"
	RestoreContainer       Op = "RestoreContainer"
	BatchDelete            Op = "BatchDelete" // a batch as a whole
	BatchItem              Op = "BatchItem"   // one delete within a batch
	Unsupported            Op = "Unsupported" // anything else
)

// operation describes an [Op]: how to recognize it, what it accepts, and how to execute it.
type operation struct {
	op Op

	// level, methods, restype and comp identify the operation.
	level   level
	methods []string
	restype string
	comp    string

	// query lists the query parameters that the operation accepts besides "timeout". Others are refused.
	query []string

	// headers lists the x-ms- headers that the operation accepts besides the common ones. Others are refused.
	headers []string

	// metadata reports whether the operation accepts x-ms-meta- headers.
	metadata bool

	// do executes the operation. The server's lock is held.
	do func(*Server, *call) *answer
}

// level is the kind of resource that a URL addresses.
type level int

const (
	accountLevel level = iota
	containerLevel
	blobLevel
)

// operations returns the table of all operations. The first matching row wins.
func operations() []operation {
	read := []string{http.MethodGet, http.MethodHead}
	return []operation{
		{
			op: ListContainers, level: accountLevel, methods: []string{http.MethodGet}, comp: "list",
			query: []string{"prefix", "marker", "maxresults", "include"}, do: (*Server).listContainers,
		},
		{
			op: GetAccountInfo, level: accountLevel, methods: read, restype: "account", comp: "properties",
			do: (*Server).accountInfo,
		},
		{
			op: GetServiceProperties, level: accountLevel, methods: []string{http.MethodGet}, restype: "service", comp: "properties",
			do: (*Server).serviceProperties,
		},
		{
			op: GetServiceStats, level: accountLevel, methods: []string{http.MethodGet}, restype: "service", comp: "stats",
			do: (*Server).noStats,
		},
		{
			op: BatchDelete, level: accountLevel, methods: []string{http.MethodPost}, comp: "batch",
			do: (*Server).batch,
		},
		{
			op: CreateContainer, level: containerLevel, methods: []string{http.MethodPut}, restype: "container",
			metadata: true, do: (*Server).createContainer,
		},
		{
			op: RestoreContainer, level: containerLevel, methods: []string{http.MethodPut}, restype: "container", comp: "undelete",
			headers: []string{"x-ms-deleted-container-name", "x-ms-deleted-container-version"}, do: (*Server).restoreContainer,
		},
		{
			op: SetContainerMetadata, level: containerLevel, methods: []string{http.MethodPut}, restype: "container", comp: "metadata",
			headers: []string{"x-ms-lease-id"}, metadata: true, do: (*Server).setContainerMetadata,
		},
		{
			op: GetContainerProperties, level: containerLevel, methods: read, restype: "container",
			headers: []string{"x-ms-lease-id"}, do: (*Server).containerProperties,
		},
		{
			op: GetContainerProperties, level: containerLevel, methods: read, restype: "container", comp: "metadata",
			headers: []string{"x-ms-lease-id"}, do: (*Server).containerProperties,
		},
		{
			op: DeleteContainer, level: containerLevel, methods: []string{http.MethodDelete}, restype: "container",
			headers: []string{"x-ms-lease-id"}, do: (*Server).deleteContainer,
		},
		{
			op: LeaseContainer, level: containerLevel, methods: []string{http.MethodPut}, restype: "container", comp: "lease",
			headers: []string{"x-ms-lease-action", "x-ms-lease-id", "x-ms-proposed-lease-id", "x-ms-lease-duration", "x-ms-lease-break-period"},
			do:      (*Server).leaseContainer,
		},
		{
			op: ListBlobs, level: containerLevel, methods: []string{http.MethodGet}, restype: "container", comp: "list",
			query: []string{"prefix", "marker", "maxresults", "include", "delimiter", "startfrom"}, do: (*Server).listBlobs,
		},
		{
			op: BatchDelete, level: containerLevel, methods: []string{http.MethodPost}, restype: "container", comp: "batch",
			do: (*Server).batch,
		},
		{
			op: PutBlob, level: blobLevel, methods: []string{http.MethodPut},
			headers: []string{
				"x-ms-blob-type", "x-ms-blob-cache-control", "x-ms-blob-content-disposition", "x-ms-blob-content-encoding",
				"x-ms-blob-content-language", "x-ms-blob-content-md5", "x-ms-blob-content-type", "x-ms-content-crc64",
				"x-ms-access-tier", "x-ms-lease-id",
			},
			metadata: true, do: (*Server).putBlob,
		},
		{
			op: SetBlobMetadata, level: blobLevel, methods: []string{http.MethodPut}, comp: "metadata",
			headers: []string{"x-ms-lease-id"}, metadata: true, do: (*Server).setBlobMetadata,
		},
		{
			op: UndeleteBlob, level: blobLevel, methods: []string{http.MethodPut}, comp: "undelete", do: (*Server).undeleteBlob,
		},
		{
			op: GetBlob, level: blobLevel, methods: []string{http.MethodGet},
			headers: []string{"x-ms-range", "x-ms-range-get-content-md5", "x-ms-lease-id"}, do: (*Server).getBlob,
		},
		{
			op: HeadBlob, level: blobLevel, methods: []string{http.MethodHead},
			headers: []string{"x-ms-lease-id"}, do: (*Server).headBlob,
		},
		{
			op: GetBlobMetadata, level: blobLevel, methods: read, comp: "metadata",
			headers: []string{"x-ms-lease-id"}, do: (*Server).headBlob,
		},
		{
			op: DeleteBlob, level: blobLevel, methods: []string{http.MethodDelete},
			headers: []string{"x-ms-delete-snapshots", "x-ms-lease-id"}, do: (*Server).deleteBlob,
		},
	}
}
