// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Every function of the public header, from C, between two threads.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ccl/trnccl.h"

#define RANKS 2
#define COUNT 5

static void Fail(int line, const char* what) {
  fprintf(stderr, "c_api_test.c:%d: %s: %s\n", line, what,
          trncclGetLastError(NULL));
  exit(1);
}

#define CHECK(condition)                          \
  do {                                            \
    if (!(condition)) Fail(__LINE__, #condition); \
  } while (0)
#define CALL(call) CHECK((call) == trncclSuccess)

static trncclUniqueId id;

// Rank r's i-th element.
static float Value(int rank, size_t i) {
  return (float)(100 * rank) + (float)i + 1;
}

static void Fill(float* to, size_t count, int rank) {
  for (size_t i = 0; i < count; ++i) to[i] = Value(rank, i);
}

static void CheckReductions(trncclComm_t comm, int rank) {
  float in[RANKS * COUNT];
  float out[RANKS * COUNT];
  Fill(in, RANKS * COUNT, rank);
  CALL(trncclAllReduce(in, out, COUNT, trncclFloat32, trncclSum, comm, NULL));
  for (size_t i = 0; i < COUNT; ++i) CHECK(out[i] == Value(0, i) + Value(1, i));
  CALL(trncclReduce(in, out, COUNT, trncclFloat32, trncclMax, 1, comm, NULL));
  for (size_t i = 0; rank == 1 && i < COUNT; ++i) CHECK(out[i] == Value(1, i));
  CALL(trncclReduceScatter(in, out, COUNT, trncclFloat32, trncclMin, comm,
                           NULL));
  const size_t first = (size_t)rank * COUNT;
  for (size_t i = 0; i < COUNT; ++i) CHECK(out[i] == Value(0, first + i));
  const size_t counts[RANKS] = {2, 3};
  CALL(trncclReduceScatterV(in, out, counts, trncclFloat32, trncclSum, comm,
                            NULL));
  for (size_t i = 0; i < counts[rank]; ++i) {
    const size_t at = (rank == 0 ? 0 : counts[0]) + i;
    CHECK(out[i] == Value(0, at) + Value(1, at));
  }
}

static void CheckOperator(trncclComm_t comm, int rank) {
  const float factor = rank == 0 ? 2 : 3;
  const float in = 10;
  float out = 0;
  trncclRedOp_t op;
  CALL(trncclRedOpCreatePreMulSum(&op, &factor, trncclFloat32, comm));
  CALL(trncclAllReduce(&in, &out, 1, trncclFloat32, op, comm, NULL));
  CHECK(out == 50);
  CALL(trncclRedOpDestroy(op, comm));
  CHECK(trncclAllReduce(&in, &out, 1, trncclFloat32, op, comm, NULL) ==
        trncclInvalidArgument);
  CHECK(strstr(trncclGetLastError(NULL), "operator") != NULL);
}

static void CheckGathers(trncclComm_t comm, int rank) {
  float in[RANKS * COUNT];
  float out[RANKS * COUNT] = {0};
  Fill(in, RANKS * COUNT, rank);
  CALL(trncclAllGather(in, out, COUNT, trncclFloat32, comm, NULL));
  for (size_t i = 0; i < COUNT; ++i)
    CHECK(out[i] == Value(0, i) && out[COUNT + i] == Value(1, i));
  const size_t counts[RANKS] = {3, 1};
  const size_t displacements[RANKS] = {4, 0};
  CALL(trncclAllGatherV(in, out, counts, displacements, trncclFloat32, comm,
                        NULL));
  CHECK(out[0] == Value(1, 0) && out[4] == Value(0, 0) &&
        out[6] == Value(0, 2));
  CALL(trncclGather(in, out, COUNT, trncclFloat32, 0, comm, NULL));
  for (size_t i = 0; rank == 0 && i < COUNT; ++i)
    CHECK(out[i] == Value(0, i) && out[COUNT + i] == Value(1, i));
  CALL(trncclScatter(in, out, COUNT, trncclFloat32, 1, comm, NULL));
  for (size_t i = 0; i < COUNT; ++i)
    CHECK(out[i] == Value(1, (size_t)rank * COUNT + i));
  CALL(trncclBroadcast(in, out, COUNT, trncclFloat32, 1, comm, NULL));
  for (size_t i = 0; i < COUNT; ++i) CHECK(out[i] == Value(1, i));
}

static void CheckExchanges(trncclComm_t comm, int rank) {
  float in[RANKS * COUNT];
  float out[RANKS * COUNT] = {0};
  Fill(in, RANKS * COUNT, rank);
  CALL(trncclAllToAll(in, out, COUNT, trncclFloat32, comm, NULL));
  for (size_t i = 0; i < COUNT; ++i) {
    CHECK(out[i] == Value(0, (size_t)rank * COUNT + i));
    CHECK(out[COUNT + i] == Value(1, (size_t)rank * COUNT + i));
  }
  // Rank s sends s + d + 1 elements to rank d.
  const size_t counts[RANKS] = {(size_t)rank + 1, (size_t)rank + 2};
  CALL(trncclAllToAllV(in, counts, NULL, out, counts, NULL, trncclFloat32, comm,
                       NULL));
  CHECK(out[0] == Value(0, rank == 0 ? 0 : 1));
  CHECK(out[counts[0]] == Value(1, rank == 0 ? 0 : 2));
}

static void CheckMessages(trncclComm_t comm, int rank) {
  const int64_t sent = 41 + rank;
  int64_t received = 0;
  trncclStatus_t status;
  trncclRequest_t requests[2];
  CALL(trncclGroupStart());
  CALL(trncclSend(&sent, 1, trncclInt64, 1 - rank, 7, comm, &requests[0]));
  CALL(trncclRecv(&received, 1, trncclInt64, TRNCCL_ANY_SOURCE, TRNCCL_ANY_TAG,
                  &status, comm, &requests[1]));
  CALL(trncclGroupEnd());
  CALL(trncclRequestWait(requests[0], TRNCCL_WAIT_FOREVER));
  CALL(trncclRequestWait(requests[1], TRNCCL_WAIT_FOREVER));
  int done = 0;
  CALL(trncclRequestTest(requests[1], &done));
  CHECK(done == 1 && received == 42 - rank);
  CHECK(status.source == 1 - rank && status.tag == 7 && status.count == 1);
  CALL(trncclRequestFree(requests[0]));
  CALL(trncclRequestFree(requests[1]));
}

static void CheckInquiries(trncclComm_t comm, int rank) {
  int value = -1;
  CALL(trncclCommCount(comm, &value));
  CHECK(value == RANKS);
  CALL(trncclCommUserRank(comm, &value));
  CHECK(value == rank);
  trncclCommInfo_t info;
  CALL(trncclCommInfo(comm, &info));
  CHECK(info.rank == rank && info.ranks == RANKS && info.nodes == 1);
  CHECK(info.local_rank == rank && info.local_ranks == RANKS);
  CHECK(strcmp(info.name, "from C") == 0 && strlen(info.transport) > 0);
  CALL(trncclCommSetTimeout(comm, 30000));
  CHECK(trncclCommSetTimeout(comm, 0) == trncclInvalidArgument);
  trncclResult_t error = trncclInternalError;
  CALL(trncclCommGetAsyncError(comm, &error));
  CHECK(error == trncclSuccess);
  char* text = NULL;
  CALL(trncclCommDumpCalls(comm, &text));
  CHECK(strstr(text, "all_reduce") != NULL);
  trncclFreeText(text);
}

static void CheckMemory(trncclComm_t comm, int rank) {
  void* memory = NULL;
  void* handle = NULL;
  CALL(trncclMemAlloc(&memory, 1 << 20));
  CALL(trncclCommRegister(comm, memory, 1 << 20, &handle));
  float* values = memory;
  CHECK(values[0] == 0);
  const size_t count = (1 << 20) / sizeof(float);
  for (size_t i = 0; i < count; ++i) values[i] = (float)(rank + 1);
  CALL(trncclAllReduce(values, values, count, trncclFloat32, trncclSum, comm,
                       NULL));
  for (size_t i = 0; i < count; ++i) CHECK(values[i] == 3);
  CALL(trncclCommDeregister(comm, handle));
  CALL(trncclMemFree(memory));
}

static void CheckChildren(trncclComm_t comm, int rank) {
  trncclComm_t child = NULL;
  CALL(trncclCommSplit(comm, 0, -rank, &child, NULL));
  int reversed = -1;
  CALL(trncclCommUserRank(child, &reversed));
  CHECK(reversed == 1 - rank);
  CALL(trncclBarrier(child, NULL));
  CALL(trncclCommAbort(child));
  CHECK(trncclBarrier(child, NULL) == trncclAborted);
  CHECK(strlen(trncclGetLastError(child)) > 0);
  CALL(trncclCommDestroy(child));
}

static void* RunRank(void* argument) {
  const int rank = *(const int*)argument;
  trncclConfig_t config = TRNCCL_CONFIG_INITIALIZER;
  const char* settings[] = {"TRNCCL_LANES=2"};
  config.name = "from C";
  config.timeout_ms = 60000;
  config.settings = settings;
  config.settings_count = 1;
  trncclComm_t comm = NULL;
  CALL(trncclCommInitRankConfig(&comm, RANKS, id, rank, &config));
  CheckReductions(comm, rank);
  CheckOperator(comm, rank);
  CheckGathers(comm, rank);
  CheckExchanges(comm, rank);
  CheckMessages(comm, rank);
  CheckInquiries(comm, rank);
  CheckMemory(comm, rank);
  CheckChildren(comm, rank);
  CALL(trncclBarrier(comm, NULL));
  CALL(trncclCommFinalize(comm));
  CALL(trncclCommDestroy(comm));
  return NULL;
}

int main(void) {
  int version = 0;
  CALL(trncclGetVersion(&version));
  CHECK(version == TRNCCL_VERSION);
  CHECK(strlen(trncclGetErrorString(trncclTimeout)) > 0);
  CALL(trncclGetUniqueId(&id));
  pthread_t threads[RANKS];
  int ranks[RANKS];
  for (int rank = 0; rank < RANKS; ++rank) {
    ranks[rank] = rank;
    CHECK(pthread_create(&threads[rank], NULL, RunRank, &ranks[rank]) == 0);
  }
  for (int rank = 0; rank < RANKS; ++rank)
    CHECK(pthread_join(threads[rank], NULL) == 0);
  // The simplest init, of a communicator of one rank.
  trncclComm_t alone = NULL;
  trncclUniqueId own;
  CALL(trncclGetUniqueId(&own));
  CALL(trncclCommInitRank(&alone, 1, own, 0));
  CALL(trncclBarrier(alone, NULL));
  CALL(trncclCommDestroy(alone));
  return 0;
}
