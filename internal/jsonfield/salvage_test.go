package jsonfield_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/svc/internal/jsonfield"
)

// Of a field that is there twice, Decode and Salvage take the same value, whether or not the rest of
// the record fits.
func TestDuplicateFieldsAreReadAlike(t *testing.T) {
	for body, want := range map[string]string{
		`{"service_id":"a","service_id":"b"}`:                 "b",
		`{"service_id":"a","Service_ID":"b"}`:                 "b",
		`{"Service_ID":"a","service_id":"b"}`:                 "b",
		`{"service_id":"a","service_id":null}`:                "a",
		`{"service_id":"a","service_id":""}`:                  "",
		`{"service_id":"a","nested":{"service_id":"b"}}`:      "a",
		`{"service_id":"a","description":5,"service_id":"b"}`: "b",
		`{"SERVICE_ID":"a","description":5,"Service_id":"b"}`: "b",
	} {
		var record struct {
			ServiceID   string `json:"service_id"`
			Description string `json:"description"`
		}
		_, err := jsonfield.Decode([]byte(body), &record, func(key string) bool { return key == "service_id" })
		require.NoError(t, err, body)
		require.Equal(t, want, record.ServiceID, "Decode of %s", body)
		require.Equal(t, want, jsonfield.Salvage([]byte(body), "service_id"), "Salvage of %s", body)
	}
	require.Equal(t, "b", jsonfield.Salvage([]byte(`{"service_id":"a","service_id":"b","service_id":"c`), "service_id"), "the last one that is complete")
}
