package azblob

import (
	"context"
	"errors"
	"iter"
	"slices"

	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/storage"
)

// Listings, and what it takes to believe that a blob or a container is absent.

// headAgain asks by name for a blob that another blob leads to. If the service says that it is absent, headAgain asks
// once more, so that one wrong answer can't make a listing shorter.
func (s *store) headAgain(ctx context.Context, ref blob.Ref) (blob.Properties, error) {
	p, err := s.client.Head(ctx, ref)
	if blob.Is(err, blob.Absent, blob.AbsentContainer) {
		return s.client.Head(ctx, ref)
	}
	return p, err
}

// listPrefix is listPresent for a container that may have been dropped, which has no blobs.
func (s *store) listPrefix(ctx context.Context, doing string, ref blob.Ref, metadata bool) iter.Seq2[blob.Item, error] {
	return func(yield func(blob.Item, error) bool) {
		for item, err := range s.listPresent(ctx, doing, ref, metadata) {
			if blob.Is(err, blob.AbsentContainer) {
				if err = s.confirmDropped(ctx, ref.Container); err == nil {
					return
				}
			}
			if !yield(item, err) {
				return
			}
		}
	}
}

// unlessDropped calls list again as long as it fails because the container is absent, and others say that it is there. A
// container that was dropped is no error.
func (s *store) unlessDropped(ctx context.Context, ref blob.Ref, list func() error) (err error) {
	for range confirmations {
		if err = list(); !blob.Is(err, blob.AbsentContainer) {
			return err
		}
		if err = s.confirmDropped(ctx, ref.Container); !errors.Is(err, storage.ErrUnavailable) {
			return err
		}
	}
	return err
}

// listPresent yields the blobs of a container whose names begin with ref's. If the service says that the container is
// absent, the error is ErrUnavailable: a single response must not make a day look empty to an Expire, a Hold or a
// Catalogue. An error is the last element.
func (s *store) listPresent(ctx context.Context, doing string, ref blob.Ref, metadata bool) iter.Seq2[blob.Item, error] {
	return s.listPages(ctx, doing, ref, blob.ListOptions{Metadata: metadata})
}

// pageSizes returns the page sizes of two listings that must agree before the absence of a blob leads to a removal or to
// a catalogue. The sizes differ, so that a cache that answered the first request wrongly can't repeat its answer.
func pageSizes() [2]int { return [...]int{blob.MaxPage, blob.MaxPage - 1} }

// listPages is listPresent with other options.
func (s *store) listPages(ctx context.Context, doing string, ref blob.Ref, o blob.ListOptions) iter.Seq2[blob.Item, error] {
	o.Prefix = ref.Name
	return func(yield func(blob.Item, error) bool) {
		for page, err := range s.client.List(ctx, ref.Container, o) {
			if blob.Is(err, blob.AbsentContainer) {
				yield(blob.Item{}, vaultError(doing, ref, "%w: the day was dropped, or the service contradicts itself: call again: %w", storage.ErrUnavailable, err))
				return
			}
			if err != nil {
				yield(blob.Item{}, blobError(doing, ref, err))
				return
			}
			for _, item := range page.Items {
				if !yield(item, nil) {
					return
				}
			}
		}
	}
}

// confirmations bounds how often HEADs and a listing are compared before the service counts as contradicting
// itself. They also differ if a blob is written or removed between the two.
const confirmations = 3

// confirmDropped returns nil only if a HEAD of a container and a list of the containers agree that it is absent, which one
// response has said. If the identity may not list containers, the HEAD decides.
func (s *store) confirmDropped(ctx context.Context, container string) error {
	const doing = "confirm that the day was dropped"
	ref := blob.Ref{Container: container}
	_, err := s.client.HeadContainer(ctx, container)
	there := err == nil
	if err != nil && !blob.Is(err, blob.Absent, blob.AbsentContainer) {
		return blobError(doing, ref, err)
	}
	for page, err := range s.client.ListContainers(ctx, container) {
		if blob.IsForbidden(err) {
			break
		}
		if err != nil {
			return blobError(doing, ref, err)
		}
		there = there || slices.ContainsFunc(page, func(c blob.ContainerItem) bool { return c.Name == container })
	}
	if there {
		return vaultError(doing, ref, "%w: the service contradicts itself about whether the container exists: call again", storage.ErrUnavailable)
	}
	s.containers.forget(container)
	return nil
}
