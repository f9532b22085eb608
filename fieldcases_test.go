package svc_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// fieldCase is a mistake that clients of services like this one made in public,
// and the tests that keep this one from making it.
type fieldCase struct {
	id      string // tests that are about nothing else have it in their names
	mistake string
	tests   []string // of this package, or "folder/Test…"
}

// fieldCases are all of them. The tests named here are the main ones of a case;
// others may touch it.
var fieldCases = []fieldCase{
	// Retries and transport
	{"B01", "an upload is kept in memory to be able to repeat it", []string{"TestB01_UploadsAreNotHeldInMemory", "TestBigTransfers"}},
	{"B02", "a create is sent again after its answer was lost, and is billed twice", []string{
		"TestB02_CreateNeverSentTwice", "TestB02_RegisterIsNotRepeated", "TestB02_DeployCreatesOnce", "TestOutcomeUnknown", "TestMatrix", "TestMatrixWire",
		"TestB02_HTTP2DoesNotRepeatACreate", "TestB02_ChangeOfProtocol", "TestB02_TransportsThatTryTwice", "TestB02_StaleConnection",
		"TestB02_HTTP2DoesNotRepeatWhatHasNoBody", "TestB02_WrappersCannotRepeat", "TestB02_TurnedDownAfterAnotherWay",
	}},
	{"B03", "when all attempts have failed, nobody learns what the last one said", []string{"TestB03_LastAnswerIsKept", "TestMatrix"}},
	{"B04", "bodies of failures stay open, and each costs a connection", []string{"TestB04_ConnectionsAreReused", "TestB04_HTTP2DoesNotStorm", "TestNothingIsLeftBehind", "TestMatrixWire"}},
	{"B05", "Retry-After freezes a call, or counts for nothing", []string{"TestB05_RetryAfter", "TestMatrix", "TestMatrixRetryAfterIsTold"}},
	{"B06", "a cancelled call goes on sleeping", []string{
		"TestB06_EndOfContext", "TestB06_ContextEndedBefore", "TestB06_CancelEndsEveryWaitAtOnce", "TestB06_DeadContextSendsNothing",
		"TestB06_CancelDuringALook", "TestMatrixContext",
	}},
	{"B07", "links with their keys turn up in errors and logs, and the library chatters", []string{
		"TestB07_SecretsStayHidden", "TestB07_SecretsOfLinks", "TestB07_Silence", "TestB07_TransfersAreSilent", "TestB07_FormerTokens",
		"TestB07_CallersErrors", "TestB07_EscapedSecrets", "TestB07_NothingShowsASecret", "TestMatrix",
	}},
	{"B08", "a connection dies in the pool, and the next call with it", []string{"TestB08_StaleConnection", "TestB08_UploadOnStaleConnection", "TestMatrixStaleConnection"}},
	{"B09", "errors that will not pass are tried again and again", []string{"TestB09_HopelessErrors", "TestB09_EndlessRedirect", "TestMatrixNoConnection", "TestMatrixRedirectLoop"}},
	{"B10", "a redirected change becomes a read, and its success is reported", []string{"TestB10_RedirectedChange", "TestB10_UploadRedirects", "TestMatrixRedirect"}},
	{"B11", "the token goes where a redirect leads", []string{"TestB11_TokenStaysAtHome", "TestMatrixRedirect"}},

	// Uploads and downloads
	{"B12", "storage gets the token, and refuses the upload for it", []string{"TestB12_NoTokenToStorage"}},
	{"B13", "a header that nobody asked for breaks the signature", []string{"TestB13_OnlyTheHeadersAskedFor", "TestB13_SignedContentType"}},
	{"B14", "an upload without a length is refused", []string{"TestB14_EveryReaderHasALength"}},
	{"B15", "the caller's file is closed or at its end when it is to be sent again", []string{"TestB15_FileStaysOpenAndIsSentAgain", "TestUpload_PositionAfterFailure"}},
	{"B16", "an expired link looks like something else", []string{"TestB16_ExpiredLink", "TestFiles_StoryOfAnExpiredLink", "TestFilesDownload_RenewsItsLink"}},
	{"B17", "one vendor's storage wants another header and says 201", []string{"TestB17_StorageFlavours"}},
	{"B18", "the time limit of a call cuts a healthy transfer", []string{"TestB18_IdleTimeout", "TestB18_DownloadIdle", "TestB18_SwitchingProtocolsHangsNothing"}},
	{"B19", "half a download, or an error page, is taken for the file", []string{"TestB19_BrokenDownloadIsNoFile", "TestB19_DiskFull", "TestMatrixDownloadInPieces"}},
	{"B20", "the proxy of the environment is not used", []string{"TestB20_ProxyOfTheEnvironment"}},
	{"B21", "a client or a default of others is changed behind their back", []string{"TestB21_ClientsAreIndependent", "TestB21_TransfersChangeNothingShared"}},
	{"B22", "an answer without end is read into memory", []string{"TestB22_EndlessBodies", "TestB22_ManyEmptyRecords", "TestLargestAnswer", "TestMatrixWire"}},

	// Waits, and instances that cost money
	{"B23", "one bad answer ends a long wait", []string{"TestB23_OneBadPollDoesNotEndTheWait", "TestB23_SuccessResetsTheFailureCount"}},
	{"B24", "a wait goes on after the failure", []string{"TestB24_FailureStatesEndTheWait"}},
	{"B25", "a status that is new breaks the record or the wait", []string{"TestB25_UnknownStatusMeansNotYet", "TestUnknownValuesSurvive"}},
	{"B26", "a new id is not found yet, and the instance is given up", []string{"TestB26_NotFoundRightAfterCreate", "TestB26_OtherCallsTakeNotFoundAtItsWord"}},
	{"B27", "all that is known of a wait is that its time was up", []string{"TestB27_TimeoutTellsTheStory"}},
	{"B28", "waits look in step, too seldom, or without pause", []string{
		"TestB28_ManyWaitsDoNotLookInStep", "TestB28_IntervalsGrowUpToTheirLimit", "TestB28_ReadinessIsNoticedSoon", "TestB28_OddIntervalsAreNoBusyLoop",
	}},
	{"B29", "a deployment fails, and the id of what runs is lost", []string{"TestB29_FailedDeployKeepsTheID"}},
	{"B30", "the clean-up uses the context that is dead", []string{
		"TestB30_CleanUpOutlivesTheContext", "TestB30_CleanUpHonoursRetryAfter", "TestB30_CleanUpThatNeverSucceeds", "TestB30_DeleteOnFailure",
	}},

	// Lists
	{"B31", "the same page comes for ever", []string{"TestB31_SamePageForEver", "TestB31_SamePageUntilTheTotalIsReached", "TestB31_EveryPageEmpty"}},
	{"B32", "the page size and the total are believed", []string{"TestB32_PageSizeAndTotalAreHints", "TestB32_UnsetPageSizeIsNotSent", "TestB32_ShortAndEmptyPagesInTheMiddle"}},
	{"B33", "an error in the middle looks like the end of the list", []string{"TestB33_ErrorInTheMiddle"}},
	{"B34", "leaving a loop leaves a goroutine", []string{"TestB34_BreakLeavesNothing", "TestB34_BreakAfterErrorAndCancel"}},

	// JSON
	{"B35", "a time in another form loses the record", []string{"TestB35_Timestamps", "TestB35_JobTimes", "TestTimeForms"}},
	{"B36", "an object where a list was expected, null, or nothing at all", []string{"TestB36_NullAndMissing", "TestB36_JobOutputs", "TestB36_JobParts", "TestB36_EmptyFileLists"}},
	{"B37", "a number comes as text", []string{"TestB37_NumbersAsText", "TestInt"}},
	{"B38", "a page of a proxy is taken for an answer, or breaks the decoder", []string{"TestB38_NotWhatWasPromised", "TestB38_FilesAnswersThatAreNone", "TestMatrix"}},
	{"B39", "a zero that was meant is not sent", []string{
		"TestServices_CreateBody", "TestServices_UpdateBody", "TestB39_VideoJobBody", "TestB39_ImageJobBody", "TestB39_ListQuery",
	}},
	{"B40", "an empty body is an error, or hides one", []string{"TestB40_EmptyBodies", "TestB40_FileDeleteTakesAnyBody", "TestMatrix"}},
	{"B41", "large numbers and prices are rounded", []string{"TestB41_BigNumbers", "TestB41_OriginalRequestKeepsItsDigits", "TestB41_PublicFileNumbers", "TestPrice"}},

	// Addresses and credentials
	{"B42", "an id changes what an address means", []string{"TestB42_IDs", "TestB42_JobIDs", "TestB42_FileIDs"}},
	{"B43", "a part of the base address is lost, or a slash is doubled", []string{"TestB43_BaseURL"}},
	{"B44", "the token goes out in the clear", []string{"TestB44_PlainHTTP"}},
	{"B45", "a token has white space around it", []string{"TestB45_Tokens"}},

	// Test tooling
	{"B46", "mocks do not catch the requests, or disturb each other", []string{"TestB46_Gock", "TestB46_GockTakenOff", "TestB46_SparseTransport", "TestB46_Parallel", "svctest/TestInMemoryHostsAreTheOnlyOnes"}},
}

// Each case is there, once and in order, and each test that it names exists.
func TestFieldCases(t *testing.T) {
	tests := declaredTests(t)
	for i, c := range fieldCases {
		require.Equal(t, fmt.Sprintf("B%02d", i+1), c.id)
		require.NotEmpty(t, c.mistake, c.id)
		require.NotEmpty(t, c.tests, "%s is held by no test", c.id)
		seen := map[string]bool{}
		for _, name := range c.tests {
			require.True(t, tests[name], "%s: there is no %s", c.id, name)
			require.False(t, seen[name], "%s: %s is there twice", c.id, name)
			seen[name] = true
		}
	}
	require.Len(t, fieldCases, 46)

	// And a test that is named after a case stands in its row.
	for name := range tests {
		id, _, _ := strings.Cut(strings.TrimPrefix(path.Base(name), "Test"), "_")
		for _, c := range fieldCases {
			if c.id == id {
				require.Contains(t, c.tests, name)
			}
		}
	}
}

// declaredTests finds the tests of the module: by name those of this package,
// with their folder in front those of others.
func declaredTests(t *testing.T) map[string]bool {
	tests := map[string]bool{}
	require.NoError(t, filepath.WalkDir(".", func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			switch d.Name() {
			case ".git", "testdata", "examples", "conformance", "tools":
				return filepath.SkipDir
			}
			return nil
		case !strings.HasSuffix(file, "_test.go"):
			return nil
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, decl := range parsed.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && isTest(f) {
				tests[path.Join(filepath.ToSlash(filepath.Dir(file)), f.Name.Name)] = true
			}
		}
		return nil
	}))
	return tests
}

// isTest reports whether go test runs f, as a test and not as a benchmark.
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
