// Package cases_test has a table of mistakes that other clients of similar services made,
// as public bug reports show. For each mistake it lists the tests that prevent it in this
// client.
package cases_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/svctest"
)

// fieldCase is one of these mistakes, with the tests that prevent it here.
type fieldCase struct {
	id      string // at least one of the tests has the ID in its name
	mistake string
	tests   []string // tests in any folder of the repository
}

// fieldCases lists all mistakes. Each row names the main tests; other tests may cover the
// mistake as well.
var fieldCases = []fieldCase{
	// Retries and transport
	{id: "B01", mistake: "an upload is kept in memory to be able to repeat it", tests: []string{"TestUploadIsNotHeldInMemory_B01"}},
	{id: "B02", mistake: "a create is sent again after its response was lost, and is billed twice", tests: []string{
		"TestCreateNeverSentTwice_B02", "TestRegisterIsNotRepeated_B02", "TestOutcomeUnknown", "TestMatrix", "TestMatrixWire",
		"TestHTTP2DoesNotRepeatACreate_B02", "TestChangeOfProtocol_B02", "TestTransportsThatTryTwice_B02", "TestStaleConnection_B02",
		"TestHTTP2DoesNotRepeatWhatHasNoBody_B02", "TestWrappersCannotRepeat_B02", "TestTurnedDownAfterAnotherWay_B02",
	}},
	{id: "B03", mistake: "after the last attempt, the error does not show the last response", tests: []string{"TestLastResponseIsKept_B03", "TestMatrix"}},
	{id: "B04", mistake: "the bodies of error responses stay open, and each of them costs a connection", tests: []string{"TestConnectionsAreReused_B04", "TestPoolKeepsItsConnections_B04", "TestHTTP2DoesNotStorm_B04", "TestNothingIsLeftBehind", "TestMatrixWire"}},
	{id: "B05", mistake: "Retry-After blocks a call for hours, or is ignored", tests: []string{"TestRetryAfter_B05", "TestMatrix", "TestMatrixRetryAfterIsTold"}},
	{id: "B06", mistake: "a cancelled call continues to sleep", tests: []string{
		"TestEndOfContext_B06", "TestContextEndedBefore_B06", "TestCancelEndsEveryWaitAtOnce_B06", "TestDeadContextSendsNothing_B06",
		"TestCancelDuringAPoll_B06", "TestMatrixContext",
	}},
	{id: "B07", mistake: "presigned URLs with their signatures appear in errors and logs, and the library writes logs without being asked", tests: []string{
		"TestSecretsStayHidden_B07", "TestTransfersHideTheSecretsOfLinks_B07", "TestSilence_B07", "TestTransfersAreSilent_B07", "TestFormerTokens_B07", "TestTokensOfASource_B07",
		"TestCallersErrors_B07", "TestEscapedSecrets_B07", "TestNothingShowsASecret_B07", "TestMatrix",
	}},
	{id: "B08", mistake: "a connection in the pool is dead, and the next call fails on it", tests: []string{"TestStaleConnection_B08"}},
	{id: "B09", mistake: "errors that a retry cannot fix are retried", tests: []string{"TestHopelessErrors_B09", "TestMatrixNoConnection", "TestMatrixRedirectLoop"}},
	{id: "B10", mistake: "a redirect turns a change into a GET, whose success counts as success of the change", tests: []string{"TestRedirectedChange_B10", "TestUploadFollowsOnlyRedirectsThatKeepItsMethod_B10", "TestMatrixRedirect"}},
	{id: "B11", mistake: "the token is sent to the target of a redirect", tests: []string{"TestTokenStaysAtHome_B11", "TestMatrixRedirect"}},

	// Uploads and downloads
	{id: "B12", mistake: "storage gets the token, and refuses the upload for it", tests: []string{"TestTransfersSendNoTokenToStorage_B12"}},
	{id: "B13", mistake: "a header that nobody asked for breaks the signature", tests: []string{"TestUploadSendsOnlyTheHeadersAskedFor_B13", "TestUploadSendsNoContentTypeOfItsOwn_B13"}},
	{id: "B14", mistake: "an upload without a length is refused", tests: []string{"TestUploadOfEveryReaderHasALength_B14"}},
	{id: "B15", mistake: "the caller's file is closed or at its end when a retry needs it", tests: []string{"TestUploadOfEveryReaderHasALength_B14", "TestUploadKeepsTheOffsetAfterAFailure_B15"}},
	{id: "B16", mistake: "the error for an expired presigned URL does not say that it has expired", tests: []string{"TestTransfersReportAnExpiredLink_B16", "TestFilesWithALinkThatExpires", "TestDownloadRenewsItsLink"}},
	{id: "B17", mistake: "the storage of one vendor needs an extra header and responds with 201", tests: []string{"TestUploadAcceptsEverySuccessOfStorage_B17"}},
	{id: "B18", mistake: "the timeout of a call ends a transfer that makes progress", tests: []string{"TestUploadEndsWhenNoByteMoves_B18", "TestDownloadEndsWhenNoByteArrives_B18", "TestSwitchingProtocolsHangsNothing_B18"}},
	{id: "B19", mistake: "a part of a download, or an error page, is stored as the file", tests: []string{"TestDownloadFileOfABrokenDownloadIsNoFile_B19", "TestTransfersReportAFullDisk_B19", "TestMatrixDownloadInPieces"}},
	{id: "B20", mistake: "the proxy of the environment is not used", tests: []string{"TestTransfersUseTheProxyOfTheEnvironment_B20"}},
	{id: "B21", mistake: "the caller's http.Client or a global default is changed", tests: []string{"TestClientsAreIndependent_B21", "TestTransfersChangeNothingShared_B21"}},
	{id: "B22", mistake: "an endless response is read into memory", tests: []string{"TestEndlessBodies_B22", "TestManyEmptyRecords_B22", "TestLargestResponse", "TestMatrixWire"}},

	// Waits, and instances that cost money
	{id: "B23", mistake: "one bad response ends a long wait", tests: []string{"TestOneBadPollDoesNotEndTheWait_B23", "TestSuccessResetsTheFailureCount_B23"}},
	{id: "B24", mistake: "a wait continues after the failure", tests: []string{"TestFailureStatesEndTheWait_B24"}},
	{id: "B25", mistake: "an unknown status breaks the record or the wait", tests: []string{"TestUnknownStatusMeansNotYet_B25", "TestUnknownValuesSurvive"}},
	{id: "B26", mistake: "a new ID is not readable yet, and the instance is abandoned", tests: []string{"TestNotFoundRightAfterCreate_B26", "TestOtherCallsTakeNotFoundAtItsWord_B26"}},
	{id: "B27", mistake: "the error of a wait says only that its time was over", tests: []string{"TestTimeoutTellsTheStory_B27"}},
	{id: "B28", mistake: "waits poll at the same moments, too rarely, or without a pause", tests: []string{
		"TestManyWaitsDoNotPollTogether_B28", "TestIntervalsGrowUpToTheirLimit_B28", "TestReadinessIsNoticedSoon_B28", "TestOddIntervalsAreNoBusyLoop_B28",
	}},
	{id: "B29", mistake: "a deployment fails, and the ID of the running endpoint is lost", tests: []string{"TestFailedDeployKeepsTheID_B29"}},
	{id: "B30", mistake: "the cleanup uses a context that has ended", tests: []string{
		"TestCleanupOutlivesTheContext_B30", "TestCleanupRespectsRetryAfter_B30", "TestCleanupThatNeverSucceeds_B30", "TestUploadDeletesItsRecordOnFailure_B30",
	}},

	// Lists
	{id: "B31", mistake: "the same page is returned forever", tests: []string{"TestSamePageForEver_B31", "TestSamePageUntilTheTotalIsReached_B31", "TestEveryPageEmpty_B31"}},
	{id: "B32", mistake: "the page size and the total are trusted", tests: []string{"TestPageSizeAndTotalAreHints_B32", "TestUnsetPageSizeIsNotSent_B32"}},
	{id: "B33", mistake: "an error in the middle looks like the end of the list", tests: []string{"TestErrorInTheMiddle_B33"}},
	{id: "B34", mistake: "a goroutine is left after the caller leaves a loop", tests: []string{"TestBreakLeavesNothing_B34", "TestBreakAfterErrorAndCancel_B34"}},

	// JSON
	{id: "B35", mistake: "a time in another format makes decoding the record fail", tests: []string{"TestTimestamps_B35", "TestJobTimes_B35", "TestTimeForms"}},
	{id: "B36", mistake: "an object in place of a list, null, or a missing field makes decoding fail", tests: []string{"TestNullAndMissing_B36", "TestJobOutputs_B36", "TestJobParts_B36", "TestEmptyFileLists_B36"}},
	{id: "B37", mistake: "a number is sent as text", tests: []string{"TestNumbersAsText_B37", "TestInt"}},
	{id: "B38", mistake: "an HTML page of a proxy counts as a response of the service, or breaks the decoder", tests: []string{"TestNotWhatWasPromised_B38", "TestFilesResponsesThatAreNone_B38", "TestMatrix"}},
	{id: "B39", mistake: "a zero that the caller set is not sent", tests: []string{
		"TestServices_CreateBody", "TestServices_UpdateBody", "TestVideoJobBody_B39", "TestImageJobBody_B39", "TestListQuery_B39",
	}},
	{id: "B40", mistake: "an empty body gives an error where none is needed, or hides an error", tests: []string{"TestEmptyBodies_B40", "TestFileDeleteTakesAnyBody_B40", "TestMatrix"}},
	{id: "B41", mistake: "large numbers and prices are rounded", tests: []string{"TestBigNumbers_B41", "TestOriginalRequestKeepsItsDigits_B41", "TestPublicFileNumbers_B41", "TestPrice"}},

	// Addresses and credentials
	{id: "B42", mistake: "an ID with special characters changes the path", tests: []string{"TestIDs_B42", "TestJobIDs_B42", "TestFileIDs_B42"}},
	{id: "B43", mistake: "a part of the base address is lost, or a slash is doubled", tests: []string{"TestBaseURL_B43"}},
	{id: "B44", mistake: "the token is sent unencrypted", tests: []string{"TestPlainHTTP_B44"}},
	{id: "B45", mistake: "a token has white space around it", tests: []string{"TestTokens_B45"}},

	// Test tooling
	{id: "B46", mistake: "mocks do not catch the requests, or disturb each other", tests: []string{"TestGock_B46", "TestGockTakenOff_B46", "TestSparseTransport_B46", "TestParallel_B46", "TestInMemoryHostsAreTheOnlyOnes"}},

	// Connections
	{id: "C01", mistake: "a dead HTTP/2 connection is used until the deadline", tests: []string{"TestDeadConnection_C01"}},
	{id: "C02", mistake: "a proxy that refuses to connect is asked until all attempts are used", tests: []string{"TestOwnTransportNamesTheProxy_C02", "TestProxyRefusesToConnect_C02"}},

	// What proves that a record is deleted, failed or empty
	{id: "C03", mistake: `"not found" about the key, the route or the whole API is taken for a deletion`, tests: []string{"TestBaseURLWithVersion_C03", "TestNotDeletedByNotFoundOfEverything_C03", "TestProofNeedsAResponseInBetween_C03"}},
	{id: "C04", mistake: "following the documented recovery after an unknown outcome loses an instance", tests: []string{"TestRecoveryOfWhatIsNotReadableYet_C04"}},
	{id: "C05", mistake: "a proxy's HTML page with a 4xx status is taken for the service's refusal", tests: []string{"TestPagesForPeople_C05"}},
	{id: "C06", mistake: "a response with status 200 and an error in its body counts as success", tests: []string{"TestSuccessThatHoldsAnError_C06"}},
	{id: "C07", mistake: `"not deleted", written as a date, reads as deleted`, tests: []string{"TestNotDeletedWrittenAsADate_C07"}},
	{id: "C08", mistake: "a status in another letter case or with white space is another status", tests: []string{"TestJobStatusInAnyCase_C08", "TestStatusInAnotherForm_C08"}},
	{id: "C09", mistake: "one unexpected value makes the record or the list unreadable, or hides the reason of an error", tests: []string{
		"TestBooleansOfAnotherType_C09", "TestDeepResponsesAreCheap_C09", "TestDoStaysStrict_C09", "TestInformationNeverFailsARecord_C09",
		"TestManyOddRecords_C09", "TestPricesThatCannotBeRead_C09", "TestTextOfAnotherType_C09", "TestTimesThatCannotBeRead_C09", "TestWhatDecidesStillFails_C09",
	}},
	{id: "C10", mistake: "a response to an update without a record is an error", tests: []string{"TestUpdateWithoutARecord_C10"}},

	// Tokens, bodies and files
	{id: "C11", mistake: "the token is rotated during a wait, and the wait ends", tests: []string{"TestTokenIsRotated_C11"}},
	{id: "C12", mistake: "a token in quotes, or a placeholder, is sent", tests: []string{"TestPlaceholdersAreNoTokens_C12"}},
	{id: "C13", mistake: "names that are not UTF-8 are sent with other characters", tests: []string{"TestBodyIsWhatTheEncoderMakesOfIt_C13"}},
	{id: "C14", mistake: "a reader that is at its end is uploaded as an empty file, with success", tests: []string{"TestUploadRefusesABodyAtItsEnd_C14"}},
	{id: "C15", mistake: "a download replaces a symbolic link, or fails on a mount without a hint", tests: []string{"TestDownloadFileRefusesAMountPoint_C15", "TestDownloadFileFollowsLinksWithoutATarget_C15"}},
	{id: "C16", mistake: "a Content-Encoding that nobody asked for gives an error about JSON", tests: []string{"TestContentEncodingNobodyAskedFor_C16"}},
	{id: "C17", mistake: "white space around an ID changes the path", tests: []string{"TestIDs_C17"}},
	{id: "C18", mistake: "the missing page after the last one gives an error, although all jobs came", tests: []string{"TestPastTheLastPage_C18"}},

	// The surface
	{id: "C19", mistake: "zero values stop or delete running endpoints", tests: []string{"TestZeroValuesDestroyNothing_C19"}},
	{id: "C20", mistake: "error values that a test constructs panic", tests: []string{"TestErrorsMadeByHand_C20"}},
	{id: "C21", mistake: "an error does not say which record it is about", tests: []string{"TestErrorsNameTheRecord_C21"}},
	{id: "C22", mistake: "an outage uses up the retry budget for hours, and nothing says so", tests: []string{"TestRetryBudget_C22"}},
	{id: "C23", mistake: "attempts cannot be counted or told apart", tests: []string{"TestAttemptsCanBeCounted_C23"}},
	{id: "C24", mistake: `a probe can only say "not yet"`, tests: []string{"TestPermanentEndsAWait_C24"}},
	{id: "C25", mistake: "the job statuses that mean failure are only described in text", tests: []string{"TestJobStatuses_C25", "TestSeededFailures_C25", "TestSeededJobHasToBeOne_C25", "TestSeededJobs_C25"}},
	{id: "C26", mistake: "waits and transfers take no request options", tests: []string{"TestTransfersTakeRequestOptions_C26", "TestWaitsTakeRequestOptions_C26", "TestWithDefaultHeader_C26"}},
	{id: "C27", mistake: "an example of a rollout loses the ID of a running endpoint", tests: []string{"TestKilledAtAnyStep_C27", "TestOldStaysInTheLedgerUntilItIsDeleted_C27"}},
	{id: "C28", mistake: "an exit code has two meanings", tests: []string{"TestExitCodesAreExplained_C28", "TestDeployFailures", "TestUnknownOutcome", "TestGetFailures"}},
	{id: "C29", mistake: "one name has two meanings", tests: []string{"TestNames_C29"}},
	{id: "C30", mistake: "the tests pass on one version of Go only", tests: []string{"TestVersionsOfGo_C30"}},
	{id: "C31", mistake: "metrics use the attributes of servers", tests: []string{"TestMetricsHaveTheBucketsOfTheConventions_C31", "TestACallIsASpanAndItsExchangesAreItsChildren"}},

	// Costs of forgotten or wrong instances, found by random conversations (test/soak)
	{id: "C32", mistake: `Deploy says "deleted" of an endpoint that was never readable`, tests: []string{"TestNeverReadIsNotDeleted_C32"}},
	{id: "C33", mistake: "Delete returns nil, but nothing was deleted", tests: []string{"TestLostDeleteOfANewEndpoint_C33"}},
	{id: "C34", mistake: "a 404 whose HTML body is cut off counts as the service's own", tests: []string{"TestCutPagesProveNothing_C34"}},
	{id: "C35", mistake: "a record from before a change ends the wait for it", tests: []string{"TestStaleReadsDoNotEndScaling_C35"}},
	{id: "C36", mistake: "a grace period is measured when the response arrives, and not from the request", tests: []string{"TestGraceCountsFromTheRequest_C36"}},
	{id: "C37", mistake: "a panic in a hook after a create loses the ID", tests: []string{"TestPanicsDoNotLoseTheID_C37", "TestResultIsKnownWhenAHookPanics_C37"}},
	{id: "C38", mistake: "a response to a create with another record is accepted", tests: []string{"TestAnotherRecord_C38"}},
	{id: "C39", mistake: `408 after a create counts as "certainly not made"`, tests: []string{"TestRequestTimeoutAfterACreate_C39"}},
	{id: "C40", mistake: "one single 404 ends a wait for a deletion", tests: []string{"TestOneNotFoundIsNotEnough_C40"}},

	// Seen with real servers
	{id: "C41", mistake: "an expired presigned URL is reported as a wrong signature", tests: []string{"TestLinkExpiresByItsOwnTimes_C41", "TestLinkExpiresByTheWordsOfStorage_C41"}},
	{id: "C42", mistake: "connections that the server ends early use up the retry budget", tests: []string{"TestGoAwayStorm_C42"}},
	{id: "C43", mistake: "the fragment of another program's URL is redacted", tests: []string{"TestErrorsKeepTheFragmentsOfLinks_C43"}},
}

// The table has every case once, in order, and every test in it exists.
func TestFieldCases(t *testing.T) {
	tests := declaredTests(t)
	const first = 46 // B01 to B46
	require.Len(t, fieldCases, first+43)
	rows := map[string][]string{}
	for i, c := range fieldCases {
		want := fmt.Sprintf("B%02d", i+1)
		if i >= first {
			want = fmt.Sprintf("C%02d", i+1-first)
		}
		require.Equal(t, want, c.id)
		require.NotEmpty(t, c.mistake, c.id)
		named := slices.ContainsFunc(c.tests, func(name string) bool { return caseOf(name) == c.id })
		require.True(t, named, "no test is named after %s", c.id)
		seen := map[string]bool{}
		for _, name := range c.tests {
			require.True(t, tests[name], "%s: there is no %s", c.id, name)
			require.False(t, seen[name], "%s: %s is there twice", c.id, name)
			seen[name] = true
		}
		rows[c.id] = c.tests
	}

	// A test that has the ID of a case in its name must be in the row of that case.
	for name := range tests {
		if row, ok := rows[caseOf(name)]; ok {
			require.Contains(t, row, name)
		}
	}
}

// caseOf returns the ID of the case at the end of the name of a test.
func caseOf(name string) string {
	_, id, _ := strings.Cut(name, "_")
	return id
}

// ErrServer and ErrUnavailable, which sound alike, are never mixed up. The README mentions
// the names that people search for.
func TestNames_C29(t *testing.T) {
	srv := svctest.NewInMemory()
	defer srv.Close()
	id := srv.AddEndpoint(svctest.Endpoint{Instances: 1})
	srv.Fault("GET", svctest.RouteEndpoint, svctest.ServiceUnavailable(1))
	_, err := srv.Client().InferenceServices.Get(t.Context(), id, svc.WithMaxAttempts(1))
	require.ErrorIs(t, err, svc.ErrServer, "an outage gives ErrServer")
	require.NotErrorIs(t, err, svc.ErrUnavailable, "ErrUnavailable is only for the status of an endpoint")

	readme := read(t, "README.md")
	for _, name := range []string{
		"WithLogger", "WithAttemptHook", "WithTransportWrapper", "WithDefaultHeader", "OnCreate", "OnFailure", "Probe", "Permanent", "Files.Replace", "UploadFile",
	} {
		require.Contains(t, readme, name)
	}
}

// CI runs the tests with both versions of Go that the README names, and .ci/run downloads
// the newer one.
func TestVersionsOfGo_C30(t *testing.T) {
	promised := regexp.MustCompile(`two latest releases of Go, (1\.\d+) and (1\.\d+)`).FindStringSubmatch(read(t, "README.md"))
	require.Len(t, promised, 3)
	require.Contains(t, read(t, "go.mod"), "\ngo "+promised[1]+"\n")
	require.Contains(t, read(t, ".github/workflows/ci.yml"), fmt.Sprintf("go: [%q, %q]", promised[1]+".x", promised[2]+".x"))
	require.Contains(t, read(t, ".ci/run"), "go=go"+promised[2]+".")
}

// read returns the contents of a file of the repository.
func read(t *testing.T, name string) string {
	text, err := os.ReadFile(filepath.Join("..", "..", name))
	require.NoError(t, err)
	return string(text)
}

// declaredTests returns the names of all tests of the repository.
func declaredTests(t *testing.T) map[string]bool {
	tests := map[string]bool{}
	require.NoError(t, filepath.WalkDir(filepath.Join("..", ".."), func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".git" || d.Name() == "testdata"):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(file, "_test.go"):
			return nil
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, decl := range parsed.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && isTest(f) {
				tests[f.Name.Name] = true
			}
		}
		return nil
	}))
	return tests
}

// isTest reports whether f is a test that go test runs. Benchmarks and helpers are not.
func isTest(f *ast.FuncDecl) bool {
	params := f.Type.Params.List
	if f.Recv != nil || !strings.HasPrefix(f.Name.Name, "Test") || len(params) != 1 {
		return false
	}
	pointer, ok := params[0].Type.(*ast.StarExpr)
	if !ok {
		return false
	}
	of, ok := pointer.X.(*ast.SelectorExpr)
	return ok && of.Sel.Name == "T"
}
