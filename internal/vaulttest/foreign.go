package vaulttest

import (
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/workflow"
)

// Foreign are plans that another program wrote into a container of a vault. It has the layout of a vault, writes neither
// markers nor the metadata of a vault, and gives no metadata to sub-objects.
type Foreign struct {
	Container string
	// Plan is whole. The others lack something that their names don't mention.
	Plan, EntryAlone, ObjectAlone, PartsAlone uuid.UUID
	server                                    *emulator.Server
	blobs                                     map[string]string
}

// PutForeign writes the plans of another program. The status of each is a number.
func PutForeign(server *emulator.Server, day time.Time, status int) *Foreign {
	f := &Foreign{Container: ContainerOf(day), server: server}
	write := func(entry, object, parts bool) uuid.UUID {
		id, part := workflow.NewV7At(day.Add(time.Hour)), workflow.NewV7At(day.Add(time.Hour))
		metadata := map[string]string{
			"PlanID": id.String(), "Name": strings.Repeat("name ", 100), "descr": "", "submittime": day.Format(time.RFC3339Nano),
			"State": fmt.Sprintf(`{"Status":%d,"Start":"0001-01-01T00:00:00Z"}`, status),
		}
		if entry {
			metadata["plantype"] = "entry"
			server.Put(f.Container, "plans/"+id.String()+"-entry.json", fmt.Appendf(nil, `{"type":1,"id":%q,"planID":%[1]q,"blocks":[%q],"stateStatus":%d}`, id, part, status), metadata)
		}
		if object {
			metadata["plantype"] = "object"
			server.Put(f.Container, "plans/"+id.String()+"-object.json", fmt.Appendf(nil, `{"ID":%q,"Blocks":[{"ID":%q}],"State":{"Status":%d}}`, id, part, status), metadata)
		}
		if parts {
			server.Put(f.Container, "blocks/"+id.String()+"/"+part.String()+".json", fmt.Appendf(nil, `{"type":3,"id":%q,"planID":%q}`, part, id), nil)
		}
		return id
	}
	f.Plan, f.EntryAlone, f.ObjectAlone, f.PartsAlone = write(true, true, true), write(true, false, true), write(false, true, true), write(false, false, true)
	f.blobs = f.stored()
	return f
}

// IDs returns the IDs of all plans, whole and half.
func (f *Foreign) IDs() []uuid.UUID {
	return []uuid.UUID{f.Plan, f.EntryAlone, f.ObjectAlone, f.PartsAlone}
}

func (f *Foreign) stored() map[string]string {
	found := map[string]string{}
	for b := range f.server.Blobs(f.Container) {
		for _, id := range f.IDs() {
			if strings.Contains(b.Name, id.String()) {
				found[b.Name] = b.ETag
			}
		}
	}
	return found
}

// Changed names the blobs that were changed, removed or added.
func (f *Foreign) Changed() (names []string) {
	now := f.stored()
	for name, etag := range f.blobs {
		if now[name] != etag {
			names = append(names, name)
		}
	}
	for name := range now {
		if f.blobs[name] == "" {
			names = append(names, name)
		}
	}
	return names
}
