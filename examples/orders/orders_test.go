package main

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
)

const order = `{"Number": "20000101-17", "Cents": 1999, "Card": "tok_4242"}`

// TestOrders sends an order twice to the first of three replicas at 4 pm, in virtual time, and asks the last one how it ended.
func TestOrders(t *testing.T) {
	for _, c := range []struct {
		name, want string
		fails      string                     // the partner that fails
		then       func(crash, cancel func()) // happens at 4:30
		asked      []string
	}{
		{name: "shipped", want: "shipped", asked: []string{"charge", "reserve", "ship", "tell the customer: shipped"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
			})
		})
	}
}
