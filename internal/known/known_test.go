package known

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func token(name string) Sender { return func(message string) string { return name + message } }

func TestAnIDIsKnownForTheTokenThatShowedIt(t *testing.T) {
	e := New()
	require.False(t, e.Knows("a", token("mine")))
	e.Read("a", token("mine"))
	e.Create("b", token("mine"))
	e.Create("c", nil)
	e.MarkKnown("d", "intent", token("mine")("intent"))
	e.MarkKnown("e", "intent", "")
	for id, known := range map[string]bool{"a": true, "b": true, "c": false, "d": true, "e": false} {
		require.Equal(t, known, e.Knows(id, token("mine")), id)
		require.False(t, e.Knows(id, token("other")), id)
	}
	require.False(t, e.ReadAt("a").IsZero())
	require.Zero(t, e.ReadAt("b"), "a record from the response to a create may not be readable yet")
}

func TestAUUIDIsKnownInAnyCase(t *testing.T) {
	e := New()
	e.Create("0011d724-abcd-4bcd-8bcd-000000000002", token("mine"))
	require.False(t, e.CreatedAt("0011D724-ABCD-4BCD-8BCD-000000000002").IsZero())
	require.True(t, e.Knows("0011D724-ABCD-4BCD-8BCD-000000000002", token("mine")))
	require.True(t, e.CreatedAt("0011D724").IsZero())
}

func TestMemoryIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := New()
		for i := range most + 10 {
			e.Read(fmt.Sprint(i), token("mine"))
		}
		e.Create("5", token("mine"))
		require.LessOrEqual(t, len(e.all), most)
		for i := range most {
			e.Read(fmt.Sprint("other ", i), token("mine"))
		}
		require.False(t, e.CreatedAt("5").IsZero(), "it was created lately")
		time.Sleep(2 * kept)
		for i := range most {
			e.Read(fmt.Sprint(i), token("mine"))
		}
		require.LessOrEqual(t, len(e.all), most)
	})
}
