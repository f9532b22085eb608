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
		"TestB02_CreateNeverSentTwice", "TestB02_RegisterIsNotRepeated", "TestOutcomeUnknown", "TestMatrix", "TestMatrixWire",
		"TestB02_HTTP2DoesNotRepeatACreate", "TestB02_ChangeOfProtocol", "TestB02_TransportsThatTryTwice", "TestB02_StaleConnection",
		"TestB02_HTTP2DoesNotRepeatWhatHasNoBody", "TestB02_WrappersCannotRepeat", "TestB02_TurnedDownAfterAnotherWay",
	}},
	{id: "B03", mistake: "after the last attempt, the error does not show the last response", tests: []string{"TestB03_LastResponseIsKept", "TestMatrix"}},
	{id: "B04", mistake: "the bodies of error responses stay open, and each of them costs a connection", tests: []string{"TestB04_ConnectionsAreReused", "TestB04_PoolKeepsItsConnections", "TestB04_HTTP2DoesNotStorm", "TestNothingIsLeftBehind", "TestMatrixWire"}},
	{id: "B05", mistake: "Retry-After blocks a call for hours, or is ignored", tests: []string{"TestB05_RetryAfter", "TestMatrix", "TestMatrixRetryAfterIsTold"}},
	{id: "B06", mistake: "a cancelled call continues to sleep", tests: []string{
		"TestB06_EndOfContext", "TestB06_ContextEndedBefore", "TestB06_CancelEndsEveryWaitAtOnce", "TestB06_DeadContextSendsNothing",
		"TestB06_CancelDuringAPoll", "TestMatrixContext",
	}},
	{id: "B07", mistake: "presigned URLs with their signatures appear in errors and logs, and the library writes logs without being asked", tests: []string{
		"TestB07_SecretsStayHidden", "TestTransfersHideTheSecretsOfLinks_B07", "TestB07_Silence", "TestTransfersAreSilent_B07", "TestB07_FormerTokens", "TestB07_TokensOfASource",
		"TestB07_CallersErrors", "TestB07_EscapedSecrets", "TestB07_NothingShowsASecret", "TestMatrix",
	}},
	{id: "B08", mistake: "a connection in the pool is dead, and the next call fails on it", tests: []string{"TestB08_StaleConnection"}},
	{id: "B09", mistake: "errors that a retry cannot fix are retried", tests: []string{"TestB09_HopelessErrors", "TestMatrixNoConnection", "TestMatrixRedirectLoop"}},
	{id: "B10", mistake: "a redirect turns a change into a GET, whose success counts as success of the change", tests: []string{"TestB10_RedirectedChange", "TestUploadFollowsOnlyRedirectsThatKeepItsMethod_B10", "TestMatrixRedirect"}},
	{id: "B11", mistake: "the token is sent to the target of a redirect", tests: []string{"TestB11_TokenStaysAtHome", "TestMatrixRedirect"}},

	// Uploads and downloads
	{id: "B12", mistake: "storage gets the token, and refuses the upload for it", tests: []string{"TestTransfersSendNoTokenToStorage_B12"}},
	{id: "B13", mistake: "a header that nobody asked for breaks the signature", tests: []string{"TestUploadSendsOnlyTheHeadersAskedFor_B13", "TestUploadSendsNoContentTypeOfItsOwn_B13"}},
	{id: "B14", mistake: "an upload without a length is refused", tests: []string{"TestUploadOfEveryReaderHasALength_B14"}},
	{id: "B15", mistake: "the caller's file is closed or at its end when a retry needs it", tests: []string{"TestUploadOfEveryReaderHasALength_B14", "TestUploadKeepsTheOffsetAfterAFailure_B15"}},
	{id: "B16", mistake: "the error for an expired presigned URL does not say that it has expired", tests: []string{"TestTransfersReportAnExpiredLink_B16", "TestFilesWithALinkThatExpires", "TestDownloadRenewsItsLink"}},
	{id: "B17", mistake: "the storage of one vendor needs an extra header and responds with 201", tests: []string{"TestUploadAcceptsEverySuccessOfStorage_B17"}},
	{id: "B18", mistake: "the timeout of a call ends a transfer that makes progress", tests: []string{"TestUploadEndsWhenNoByteMoves_B18", "TestDownloadEndsWhenNoByteArrives_B18", "TestB18_SwitchingProtocolsHangsNothing"}},
	{id: "B19", mistake: "a part of a download, or an error page, is stored as the file", tests: []string{"TestDownloadFileOfABrokenDownloadIsNoFile_B19", "TestTransfersReportAFullDisk_B19", "TestMatrixDownloadInPieces"}},
	{id: "B20", mistake: "the proxy of the environment is not used", tests: []string{"TestTransfersUseTheProxyOfTheEnvironment_B20"}},
	{id: "B21", mistake: "the caller's http.Client or a global default is changed", tests: []string{"TestB21_ClientsAreIndependent", "TestTransfersChangeNothingShared_B21"}},
	{id: "B22", mistake: "an endless response is read into memory", tests: []string{"TestB22_EndlessBodies", "TestB22_ManyEmptyRecords", "TestLargestResponse", "TestMatrixWire"}},

	// Waits, and instances that cost money
	{id: "B23", mistake: "one bad response ends a long wait", tests: []string{"TestB23_OneBadPollDoesNotEndTheWait", "TestB23_SuccessResetsTheFailureCount"}},
	{id: "B24", mistake: "a wait continues after the failure", tests: []string{"TestB24_FailureStatesEndTheWait"}},
	{id: "B25", mistake: "an unknown status breaks the record or the wait", tests: []string{"TestB25_UnknownStatusMeansNotYet", "TestUnknownValuesSurvive"}},
	{id: "B26", mistake: "a new ID is not readable yet, and the instance is abandoned", tests: []string{"TestB26_NotFoundRightAfterCreate", "TestB26_OtherCallsTakeNotFoundAtItsWord"}},
	{id: "B27", mistake: "the error of a wait says only that its time was over", tests: []string{"TestB27_TimeoutTellsTheStory"}},
	{id: "B28", mistake: "waits poll at the same moments, too rarely, or without a pause", tests: []string{
		"TestB28_ManyWaitsDoNotPollTogether", "TestB28_IntervalsGrowUpToTheirLimit", "TestB28_ReadinessIsNoticedSoon", "TestB28_OddIntervalsAreNoBusyLoop",
	}},
	{id: "B29", mistake: "a deployment fails, and the ID of the running endpoint is lost", tests: []string{"TestB29_FailedDeployKeepsTheID"}},
	{id: "B30", mistake: "the cleanup uses a context that has ended", tests: []string{
		"TestB30_CleanupOutlivesTheContext", "TestB30_CleanupRespectsRetryAfter", "TestB30_CleanupThatNeverSucceeds", "TestUploadDeletesItsRecordOnFailure_B30",
	}},

	// Lists
	{id: "B31", mistake: "the same page is returned forever", tests: []string{"TestB31_SamePageForEver", "TestB31_SamePageUntilTheTotalIsReached", "TestB31_EveryPageEmpty"}},
	{id: "B32", mistake: "the page size and the total are trusted", tests: []string{"TestB32_PageSizeAndTotalAreHints", "TestB32_UnsetPageSizeIsNotSent"}},
	{id: "B33", mistake: "an error in the middle looks like the end of the list", tests: []string{"TestB33_ErrorInTheMiddle"}},
	{id: "B34", mistake: "a goroutine is left after the caller leaves a loop", tests: []string{"TestB34_BreakLeavesNothing", "TestB34_BreakAfterErrorAndCancel"}},

	// JSON
	{id: "B35", mistake: "a time in another format makes decoding the record fail", tests: []string{"TestB35_Timestamps", "TestB35_JobTimes", "TestTimeForms"}},
	{id: "B36", mistake: "an object in place of a list, null, or a missing field makes decoding fail", tests: []string{"TestB36_NullAndMissing", "TestB36_JobOutputs", "TestB36_JobParts", "TestB36_EmptyFileLists"}},
	{id: "B37", mistake: "a number is sent as text", tests: []string{"TestB37_NumbersAsText", "TestInt"}},
	{id: "B38", mistake: "an HTML page of a proxy counts as a response of the service, or breaks the decoder", tests: []string{"TestB38_NotWhatWasPromised", "TestB38_FilesResponsesThatAreNone", "TestMatrix"}},
	{id: "B39", mistake: "a zero that the caller set is not sent", tests: []string{
		"TestServices_CreateBody", "TestServices_UpdateBody", "TestB39_VideoJobBody", "TestB39_ImageJobBody", "TestB39_ListQuery",
	}},
	{id: "B40", mistake: "an empty body gives an error where none is needed, or hides an error", tests: []string{"TestB40_EmptyBodies", "TestB40_FileDeleteTakesAnyBody", "TestMatrix"}},
	{id: "B41", mistake: "large numbers and prices are rounded", tests: []string{"TestB41_BigNumbers", "TestB41_OriginalRequestKeepsItsDigits", "TestB41_PublicFileNumbers", "TestPrice"}},

	// Addresses and credentials
	{id: "B42", mistake: "an ID with special characters changes the path", tests: []string{"TestB42_IDs", "TestB42_JobIDs", "TestB42_FileIDs"}},
	{id: "B43", mistake: "a part of the base address is lost, or a slash is doubled", tests: []string{"TestB43_BaseURL"}},
	{id: "B44", mistake: "the token is sent unencrypted", tests: []string{"TestB44_PlainHTTP"}},
	{id: "B45", mistake: "a token has white space around it", tests: []string{"TestB45_Tokens"}},

	// Test tooling
	{id: "B46", mistake: "mocks do not catch the requests, or disturb each other", tests: []string{"TestB46_Gock", "TestB46_GockTakenOff", "TestB46_SparseTransport", "TestB46_Parallel", "TestInMemoryHostsAreTheOnlyOnes"}},

	// Connections
	{id: "C01", mistake: "a dead HTTP/2 connection is used until the deadline", tests: []string{"TestC01_DeadConnection"}},
	{id: "C02", mistake: "a proxy that refuses to connect is asked until all attempts are used", tests: []string{"TestC02_OwnTransportNamesTheProxy", "TestC02_ProxyRefusesToConnect"}},

	// What proves that a record is deleted, failed or empty
	{id: "C03", mistake: `"not found" about the key, the route or the whole API is taken for a deletion`, tests: []string{"TestC03_BaseURLWithVersion", "TestC03_NotDeletedByNotFoundOfEverything", "TestC03_ProofNeedsAResponseInBetween"}},
	{id: "C04", mistake: "following the documented recovery after an unknown outcome loses an instance", tests: []string{"TestC04_RecoveryOfWhatIsNotReadableYet"}},
	{id: "C05", mistake: "a proxy's HTML page with a 4xx status is taken for the service's refusal", tests: []string{"TestC05_PagesForPeople"}},
	{id: "C06", mistake: "a response with status 200 and an error in its body counts as success", tests: []string{"TestC06_SuccessThatHoldsAnError"}},
	{id: "C07", mistake: `"not deleted", written as a date, reads as deleted`, tests: []string{"TestC07_NotDeletedWrittenAsADate"}},
	{id: "C08", mistake: "a status in another letter case or with white space is another status", tests: []string{"TestC08_JobStatusInAnyCase", "TestC08_StatusInAnotherForm"}},
	{id: "C09", mistake: "one unexpected value makes the record or the list unreadable, or hides the reason of an error", tests: []string{
		"TestC09_BooleansOfAnotherType", "TestC09_DeepResponsesAreCheap", "TestC09_DoStaysStrict", "TestC09_InformationNeverFailsARecord",
		"TestC09_ManyOddRecords", "TestC09_PricesThatCannotBeRead", "TestC09_TextOfAnotherType", "TestC09_TimesThatCannotBeRead", "TestC09_WhatDecidesStillFails",
	}},
	{id: "C10", mistake: "a response to an update without a record is an error", tests: []string{"TestC10_UpdateWithoutARecord"}},

	// Tokens, bodies and files
	{id: "C11", mistake: "the token is rotated during a wait, and the wait ends", tests: []string{"TestC11_TokenIsRotated"}},
	{id: "C12", mistake: "a token in quotes, or a placeholder, is sent", tests: []string{"TestC12_PlaceholdersAreNoTokens"}},
	{id: "C13", mistake: "names that are not UTF-8 are sent with other characters", tests: []string{"TestC13_NamesThatAreNotUTF8"}},
	{id: "C14", mistake: "a reader that is at its end is uploaded as an empty file, with success", tests: []string{"TestUploadRefusesABodyAtItsEnd_C14"}},
	{id: "C15", mistake: "a download replaces a symbolic link, or fails on a mount without a hint", tests: []string{"TestDownloadFileRefusesAMountPoint_C15", "TestDownloadFileFollowsLinksWithoutATarget_C15"}},
	{id: "C16", mistake: "a Content-Encoding that nobody asked for gives an error about JSON", tests: []string{"TestC16_ContentEncodingNobodyAskedFor"}},
	{id: "C17", mistake: "white space around an ID changes the path", tests: []string{"TestC17_IDs"}},
	{id: "C18", mistake: "the missing page after the last one gives an error, although all jobs came", tests: []string{"TestC18_PastTheLastPage"}},

	// The surface
	{id: "C19", mistake: "zero values stop or delete running endpoints", tests: []string{"TestC19_ZeroValuesDestroyNothing"}},
	{id: "C20", mistake: "error values that a test constructs panic", tests: []string{"TestC20_ErrorsMadeByHand"}},
	{id: "C21", mistake: "an error does not say which record it is about", tests: []string{"TestC21_ErrorsNameTheRecord"}},
	{id: "C22", mistake: "an outage uses up the retry budget for hours, and nothing says so", tests: []string{"TestC22_RetryBudget"}},
	{id: "C23", mistake: "attempts cannot be counted or told apart", tests: []string{"TestC23_AttemptsCanBeCounted"}},
	{id: "C24", mistake: `a probe can only say "not yet"`, tests: []string{"TestC24_PermanentEndsAWait"}},
	{id: "C25", mistake: "the job statuses that mean failure are only described in text", tests: []string{"TestC25_JobStatuses", "TestC25_SeededFailures", "TestC25_SeededJobHasToBeOne", "TestC25_SeededJobs"}},
	{id: "C26", mistake: "waits and transfers take no request options", tests: []string{"TestTransfersTakeRequestOptions_C26", "TestC26_WaitsTakeRequestOptions", "TestC26_WithDefaultHeader"}},
	{id: "C27", mistake: "an example of a rollout loses the ID of a running endpoint", tests: []string{"TestC27_KilledAtAnyStep", "TestC27_OldStaysInTheLedgerUntilItIsDeleted"}},
	{id: "C28", mistake: "an exit code has two meanings", tests: []string{"TestC28_EachExitCodeHasOneMeaning", "TestC28_Delete", "TestC28_Scale", "TestC28_ReadmeAndHelp"}},
	{id: "C29", mistake: "one name has two meanings", tests: []string{"TestC29_Names"}},
	{id: "C30", mistake: "the tests pass on one version of Go only", tests: []string{"TestC30_VersionsOfGo"}},
	{id: "C31", mistake: "metrics use the attributes of servers", tests: []string{"TestC31_MetricsHaveTheLabelsOfClients", "TestC31_SpansHaveTheAttributesOfClients"}},

	// Costs of forgotten or wrong instances, found by random conversations (test/soak)
	{id: "C32", mistake: `Deploy says "deleted" of an endpoint that was never readable`, tests: []string{"TestC32_NeverReadIsNotDeleted"}},
	{id: "C33", mistake: "Delete returns nil, but nothing was deleted", tests: []string{"TestC33_LostDeleteOfANewEndpoint"}},
	{id: "C34", mistake: "a 404 whose HTML body is cut off counts as the service's own", tests: []string{"TestC34_CutPagesProveNothing"}},
	{id: "C35", mistake: "a record from before a change ends the wait for it", tests: []string{"TestC35_StaleReadsDoNotEndScaling"}},
	{id: "C36", mistake: "a grace period is measured when the response arrives, and not from the request", tests: []string{"TestC36_GraceCountsFromTheRequest"}},
	{id: "C37", mistake: "a panic in a hook after a create loses the ID", tests: []string{"TestC37_PanicsDoNotLoseTheID", "TestC37_ResultIsKnownWhenAHookPanics"}},
	{id: "C38", mistake: "a response to a create with another record is accepted", tests: []string{"TestC38_AnotherRecord"}},
	{id: "C39", mistake: `408 after a create counts as "certainly not made"`, tests: []string{"TestC39_RequestTimeoutAfterACreate"}},
	{id: "C40", mistake: "one single 404 ends a wait for a deletion", tests: []string{"TestC40_OneNotFoundIsNotEnough"}},

	// Seen with real servers
	{id: "C41", mistake: "an expired presigned URL is reported as a wrong signature", tests: []string{"TestLinkExpiresByItsOwnTimes_C41", "TestLinkExpiresByTheWordsOfStorage_C41"}},
	{id: "C42", mistake: "connections that the server ends early use up the retry budget", tests: []string{"TestC42_GoAwayStorm"}},
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

// caseOf returns the ID of the case in the name of a test: it is at the end or at the beginning.
func caseOf(name string) string {
	_, id, _ := strings.Cut(name, "_")
	if caseID.MatchString(id) {
		return id
	}
	id, _, _ = strings.Cut(strings.TrimPrefix(name, "Test"), "_")
	return id
}

var caseID = regexp.MustCompile(`^[BCD][0-9]{2}$`)

// ErrServer and ErrUnavailable, which sound alike, are never mixed up. The README mentions
// the names that people search for.
func TestC29_Names(t *testing.T) {
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
func TestC30_VersionsOfGo(t *testing.T) {
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
