package emulator

import (
	"net/http"
	"strconv"
	"time"
)

// deletion is how long the name of a deleted container can't be used: the least that the service promises.
const deletion = 30 * time.Second

func (s *Server) createContainer(c *call) *answer {
	if s.state.container(c.container) != nil {
		return fail("ContainerAlreadyExists")
	}
	if c.now.Before(s.state.deleted[c.container]) { // its name is held
		return fail("ContainerBeingDeleted")
	}
	ct := newContainer(c.container)
	ct.Metadata = packMetadata(c.metadata)
	ct.touch(s, c.now)
	s.state.putContainer(ct)
	a := newAnswer(http.StatusCreated)
	ct.describe(a)
	return a
}

// conditionally returns the container of an operation that supports the conditions on time, or only
// If-Modified-Since, if its conditions are met.
func (s *Server) conditionally(c *call, onlyModified bool) (*container, *answer) {
	if !onlyModified && c.cond.hasModifiedSince && c.cond.hasUnmodifSince {
		return nil, fail("MultipleConditionHeadersNotSupported")
	}
	ct := s.state.container(c.container)
	if ct == nil {
		return nil, fail("ContainerNotFound")
	}
	if c.cond.match != nil || c.cond.noneMatch != nil || onlyModified && c.cond.hasUnmodifSince {
		return nil, fail("ConditionHeadersNotSupported")
	}
	return ct, c.cond.onTime(ct.Modified)
}

func (s *Server) deleteContainer(c *call) *answer {
	ct, bad := s.conditionally(c, false)
	if bad != nil {
		return bad
	}
	if bad := ct.Lease.check(c.http.Header.Get("x-ms-lease-id"), true, c.now); bad != nil {
		return bad
	}
	s.keepContainer(ct)
	s.state.removeContainer(ct, c.now.Add(deletion))
	return newAnswer(http.StatusAccepted)
}

func (s *Server) containerProperties(c *call) *answer {
	ct := s.state.container(c.container)
	if ct == nil {
		return fail("ContainerNotFound")
	}
	if bad := ct.Lease.check(c.http.Header.Get("x-ms-lease-id"), false, c.now); bad != nil {
		return bad
	}
	a := newAnswer(http.StatusOK)
	ct.describe(a)
	ct.Metadata.set(a.header)
	status, state, duration := ct.Lease.status(c.now)
	a.header.Set("X-Ms-Lease-Status", status)
	a.header.Set("X-Ms-Lease-State", string(state))
	if duration != "" {
		a.header.Set("X-Ms-Lease-Duration", duration)
	}
	a.header.Set("X-Ms-Has-Immutability-Policy", "false")
	a.header.Set("X-Ms-Has-Legal-Hold", "false")
	return a
}

func (s *Server) setContainerMetadata(c *call) *answer {
	ct, bad := s.conditionally(c, true)
	if bad != nil {
		return bad
	}
	if bad := ct.Lease.check(c.http.Header.Get("x-ms-lease-id"), false, c.now); bad != nil {
		return bad
	}
	changed := *ct
	changed.Metadata = packMetadata(c.metadata)
	changed.touch(s, c.now)
	s.state.putContainer(&changed)
	a := newAnswer(http.StatusOK)
	changed.describe(a)
	return a
}

// touch assigns a new version to the container.
func (ct *container) touch(s *Server, now time.Time) {
	ct.Version = s.state.nextVersion(now)
	ct.Modified = second(now)
}

func (ct *container) describe(a *answer) {
	a.header.Set("Etag", ct.Version.quoted())
	a.header.Set("Last-Modified", stamp(ct.Modified))
}

// accountInfo answers as an account of the current kind does.
func (s *Server) accountInfo(*call) *answer {
	a := newAnswer(http.StatusOK)
	a.header.Set("X-Ms-Sku-Name", "Standard_LRS")
	a.header.Set("X-Ms-Account-Kind", "StorageV2")
	a.header.Set("X-Ms-Is-Hns-Enabled", strconv.FormatBool(s.hierarchical))
	return a
}

// serviceProperties answers as the data plane does. It knows neither versioning nor the soft delete of containers:
// https://github.com/Azure/azure-sdk-for-net/issues/21774
func (s *Server) serviceProperties(*call) *answer {
	a := newAnswer(http.StatusOK)
	a.header.Set("Content-Type", "application/xml")
	policy := "<Enabled>false</Enabled>"
	if s.softDelete {
		policy = "<Enabled>true</Enabled><Days>" + strconv.Itoa(softDeleteDays) + "</Days>"
	}
	a.body = []byte(xmlProlog + "<StorageServiceProperties><Cors/><DeleteRetentionPolicy>" + policy +
		"</DeleteRetentionPolicy></StorageServiceProperties>")
	return a
}
