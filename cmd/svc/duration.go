package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// parseDays reads a duration that may also be in days, such as 90d.
func parseDays(text string) (time.Duration, error) {
	if n, ok := strings.CutSuffix(text, "d"); ok {
		days, err := strconv.ParseUint(n, 10, 16)
		if err != nil {
			return 0, fmt.Errorf("%q is not a duration, such as 8h or 90d", text)
		}
		return time.Duration(days) * 24 * time.Hour, nil
	}
	return time.ParseDuration(text)
}
