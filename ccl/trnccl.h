/* SPDX-License-Identifier: Apache-2.0
 * Copyright (c) The trnccl Authors
 *
 * trnccl: collective communication between processes. This header is the whole
 * public interface, plain C; whoever knows NCCL knows it.
 *
 *   trncclUniqueId id;
 *   if (rank == 0) trncclGetUniqueId(&id);
 *   ... hand the id to all ranks by whatever launched them ...
 *   trncclComm_t comm;
 *   trncclCommInitRank(&comm, ranks, id, rank);
 *   trncclAllReduce(in, out, count, trncclFloat32, trncclSum, comm, NULL);
 *   trncclCommDestroy(comm);
 *
 * Calls. Each function that takes a request is blocking if the request is NULL
 * and asynchronous otherwise. Every rank of a communicator makes the same
 * collective calls in the same order; communicators are independent of each
 * other. Buffers belong to the library from the call until it's complete.
 * Counts are elements. A collective may be in place where its doc says so;
 * buffers that overlap in any other way are refused.
 *
 * Errors. Every function returns a result code; trncclSuccess is 0. The text of
 * the last error, with ranks, call and cause, is trncclGetLastError()'s. A call
 * that's refused (trncclInvalidArgument, trncclInvalidUsage) leaves everything
 * as it was. Any other error fails the communicator: the first cause is kept,
 * later calls return it, and destroying or aborting it always works.
 *
 * Threads. Functions on different communicators may be called from any threads
 * at once. On one communicator, calls may come from different threads, one
 * after the other; trncclCommAbort, trncclCommGetAsyncError,
 * trncclGetLastError and the request functions may be called from any thread at
 * any time. Functions are for the process that made the communicator: in a
 * child after fork() they return trncclInvalidUsage.
 */
#ifndef TRNCCL_H_
#define TRNCCL_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TRNCCL_MAJOR 0
#define TRNCCL_MINOR 1
#define TRNCCL_PATCH 0
#define TRNCCL_VERSION \
  (TRNCCL_MAJOR * 10000 + TRNCCL_MINOR * 100 + TRNCCL_PATCH)

#define TRNCCL_EXPORT __attribute__((visibility("default")))

#define TRNCCL_UNIQUE_ID_BYTES 128
#define TRNCCL_ANY_SOURCE (-1)
#define TRNCCL_ANY_TAG (-1)
#define TRNCCL_SPLIT_NOCOLOR (-1)
#define TRNCCL_WAIT_FOREVER (-1)

typedef struct trncclComm* trncclComm_t;
typedef struct trncclRequest* trncclRequest_t;

/* Opaque; hand it to the other ranks as bytes. It holds a secret: whoever has
 * it can join. */
typedef struct {
  char internal[TRNCCL_UNIQUE_ID_BYTES];
} trncclUniqueId;

typedef enum {
  trncclSuccess = 0,
  trncclDeviceError = 1,     /* an accelerator failed */
  trncclSystemError = 2,     /* the operating system refused or failed */
  trncclInternalError = 3,   /* a fault of this library */
  trncclInvalidArgument = 4, /* a bad argument; nothing has changed */
  trncclInvalidUsage = 5,    /* a call at the wrong time; nothing has changed */
  trncclRemoteError = 6,     /* another rank failed, died or disagrees */
  trncclInProgress = 7,      /* not finished yet; not an error */
  trncclTimeout = 8,         /* a deadline passed; the text says who is late */
  trncclAborted = 9,         /* the communicator was aborted */
  trncclOutOfResources = 10  /* no memory, descriptors or shared memory */
} trncclResult_t;

typedef enum {
  trncclInt8 = 0,
  trncclUint8 = 1,
  trncclInt16 = 2,
  trncclUint16 = 3,
  trncclInt32 = 4,
  trncclUint32 = 5,
  trncclInt64 = 6,
  trncclUint64 = 7,
  trncclFloat16 = 8,
  trncclBfloat16 = 9,
  trncclFloat32 = 10,
  trncclFloat64 = 11,
  trncclFloat8e4m3 = 12, /* e4m3fn: no infinity, largest value 448 */
  trncclFloat8e5m2 = 13,
  trncclBool = 14, /* one byte; anything but 0 is true, 0 and 1 are stored */
  trncclComplex64 = 15,
  trncclComplex128 = 16
} trncclDataType_t;

/* Operators made by trncclRedOpCreatePreMulSum have other values. What each
 * pair of type and operator means, and which have no meaning, is written in
 * ccl/kernels/README.md. */
typedef int trncclRedOp_t;
enum {
  trncclSum = 0,
  trncclProd = 1,
  trncclMin = 2,
  trncclMax = 3,
  trncclAvg = 4,
  trncclBand = 6,
  trncclBor = 7,
  trncclBxor = 8
};

/* How a communicator is made. Start from TRNCCL_CONFIG_INITIALIZER and change
 * fields; strings are copied. */
typedef struct {
  size_t size;        /* sizeof(trncclConfig_t) */
  int blocking;       /* 0: init returns trncclInProgress at once */
  const char* name;   /* for logs and errors; NULL: "comm" */
  int64_t timeout_ms; /* deadline of every call; 0: TRNCCL_TIMEOUT_MS */
  const char* const* settings; /* "TRNCCL_NAME=VALUE", as the environment */
  int settings_count;
} trncclConfig_t;

#define TRNCCL_CONFIG_INITIALIZER \
  { sizeof(trncclConfig_t), 1, NULL, 0, NULL, 0 }

typedef struct {
  int rank;
  int ranks;
  int local_rank; /* among the ranks of this rank's node */
  int local_ranks;
  int nodes;
  const char* name;           /* valid until the communicator is destroyed */
  const char* transport;      /* what carries messages inside the node */
  const char* last_algorithm; /* of the last collective; "" before any */
} trncclCommInfo_t;

/* What a receive got. */
typedef struct {
  int source;
  int64_t tag;
  size_t count; /* elements */
} trncclStatus_t;

/* ---- Library -------------------------------------------------------------*/

/* TRNCCL_VERSION of the library that's loaded. Any thread. */
TRNCCL_EXPORT trncclResult_t trncclGetVersion(int* version);

/* A static, general text for a result code. Any thread; never NULL. */
TRNCCL_EXPORT const char* trncclGetErrorString(trncclResult_t result);

/* Why `comm` failed; or, while it's healthy, or NULL, the text of the last
 * failed call of the calling thread, "" if there was none. Valid until the next
 * call of this function by the same thread. Any thread. */
TRNCCL_EXPORT const char* trncclGetLastError(trncclComm_t comm);

/* ---- Communicators -------------------------------------------------------*/

/* Makes an id for one communicator. The calling process opens a listening
 * socket and must itself be one of the communicator's ranks: the others find
 * each other through it. trncclSystemError: no usable network interface. */
TRNCCL_EXPORT trncclResult_t trncclGetUniqueId(trncclUniqueId* id);

/* Makes this process (or thread) rank `rank` of `ranks`. Returns when all ranks
 * are there, or fails within TRNCCL_BOOTSTRAP_TIMEOUT_MS naming the missing
 * ones. Several ranks may live in one process, each on a thread of its own. */
TRNCCL_EXPORT trncclResult_t trncclCommInitRank(trncclComm_t* comm, int ranks,
                                                trncclUniqueId id, int rank);

/* The same with a configuration (NULL: the defaults). With config->blocking 0
 * it returns trncclInProgress at once; trncclCommGetAsyncError tells when the
 * communicator is usable, or why it isn't. */
TRNCCL_EXPORT trncclResult_t
trncclCommInitRankConfig(trncclComm_t* comm, int ranks, trncclUniqueId id,
                         int rank, const trncclConfig_t* config);

/* Collective over `comm`: ranks that pass the same color (>= 0) form a new
 * communicator, ordered by key, ties by rank. TRNCCL_SPLIT_NOCOLOR: this rank
 * joins none and *newcomm is NULL. Other negative colors are refused. */
TRNCCL_EXPORT trncclResult_t trncclCommSplit(trncclComm_t comm, int color,
                                             int key, trncclComm_t* newcomm,
                                             const trncclConfig_t* config);

/* A new communicator of all ranks of `comm` but the `exclude_count` in
 * `exclude`, in the same order. Called by those who stay, with the same list;
 * not by those left out, who may be dead. `comm` may have failed, and stays as
 * it is: destroy it when you like. With TRNCCL_SHRINK_ABORT it's aborted first,
 * which ends calls of other threads. If one more rank is lost meanwhile, the
 * error says so: call it again and leave that one out too. */
#define TRNCCL_SHRINK_DEFAULT 0
#define TRNCCL_SHRINK_ABORT 1
TRNCCL_EXPORT trncclResult_t trncclCommShrink(
    trncclComm_t comm, const int* exclude, int exclude_count,
    trncclComm_t* newcomm, const trncclConfig_t* config, int flags);

/* A new communicator of `ranks` ranks: those of `comm`, which keep their
 * numbers, and newcomers. Ranks of `comm` pass it and -1 as `rank`, and at
 * least one of them the id; newcomers pass NULL as `comm`, the id and their
 * rank. The id is trncclGetUniqueId's, called by any of the new ranks. `comm`
 * stays as it is. */
TRNCCL_EXPORT trncclResult_t trncclCommGrow(trncclComm_t comm, int ranks,
                                            const trncclUniqueId* id, int rank,
                                            trncclComm_t* newcomm,
                                            const trncclConfig_t* config);

/* Waits until all calls made so far are complete. Then destroy it. */
TRNCCL_EXPORT trncclResult_t trncclCommFinalize(trncclComm_t comm);

/* Frees the communicator and its unfinished requests' hold on buffers. Call
 * trncclCommFinalize first unless it failed. Outstanding requests stay valid
 * for trncclRequestFree. */
TRNCCL_EXPORT trncclResult_t trncclCommDestroy(trncclComm_t comm);

/* Fails the communicator with trncclAborted: every call on it, in any thread,
 * returns soon. Never blocks. Destroy it afterwards. Any thread. */
TRNCCL_EXPORT trncclResult_t trncclCommAbort(trncclComm_t comm);

/* *error is trncclInProgress during a non-blocking init, trncclSuccess while
 * the communicator is healthy, else what made it fail. Any thread. */
TRNCCL_EXPORT trncclResult_t trncclCommGetAsyncError(trncclComm_t comm,
                                                     trncclResult_t* error);

TRNCCL_EXPORT trncclResult_t trncclCommCount(trncclComm_t comm, int* ranks);
TRNCCL_EXPORT trncclResult_t trncclCommUserRank(trncclComm_t comm, int* rank);
TRNCCL_EXPORT trncclResult_t trncclCommInfo(trncclComm_t comm,
                                            trncclCommInfo_t* info);

/* For who checks arguments before it calls: tells the other ranks that this one
 * has refused the collective that would be its next, and why, so that those who
 * wait for it fail soon with `reason`, unless it's made within a second after
 * all. What the library refuses itself, it tells by itself. */
TRNCCL_EXPORT trncclResult_t trncclCommAnnounceRefusal(trncclComm_t comm,
                                                       const char* reason);
/* The same of a send to `peer` or a receive from it, as trncclSend and
 * trncclRecv would take them: `peer` is told, and nobody if there's no such
 * rank. */
TRNCCL_EXPORT trncclResult_t trncclCommAnnounceRefusedSend(trncclComm_t comm,
                                                           int peer,
                                                           int64_t tag,
                                                           const char* reason);
TRNCCL_EXPORT trncclResult_t trncclCommAnnounceRefusedRecv(trncclComm_t comm,
                                                           int peer,
                                                           int64_t tag,
                                                           const char* reason);

/* The deadline of calls made from now on; 0 and less are refused. */
TRNCCL_EXPORT trncclResult_t trncclCommSetTimeout(trncclComm_t comm,
                                                  int64_t timeout_ms);

/* The recorder's last calls as JSON, in the form of PyTorch's flight recorder.
 * Free the text with trncclFreeText. Any thread. */
TRNCCL_EXPORT trncclResult_t trncclCommDumpCalls(trncclComm_t comm,
                                                 char** text);
/* Where another rank is, as errors tell it: "rank 2 (host a, pid 7): stopped,
 * its last call: all_reduce #5 (float32, count 4), over 3.0 s ago", or how it
 * ended. Of a rank on another machine that lives, that it can't be seen. Free
 * the text likewise. Any thread. */
TRNCCL_EXPORT trncclResult_t trncclCommDescribeRank(trncclComm_t comm, int rank,
                                                    char** text);
/* What has become of a rank, as far as is known; also of a communicator that
 * has failed. Any thread. */
typedef enum {
  trncclRankPresent = 0,
  trncclRankLeft = 1, /* it has destroyed it, or ended after it had failed */
  trncclRankLost = 2, /* its process has ended, or its node is cut off */
} trncclRankState_t;
TRNCCL_EXPORT trncclResult_t trncclCommGetRankState(trncclComm_t comm, int rank,
                                                    trncclRankState_t* state);
TRNCCL_EXPORT void trncclFreeText(char* text);

/* ---- Operators and memory ------------------------------------------------*/

/* An operator that multiplies each rank's input by that rank's own *factor (one
 * element of `type`, in host memory, read now) and then sums. It works for that
 * type and communicator. */
TRNCCL_EXPORT trncclResult_t trncclRedOpCreatePreMulSum(trncclRedOp_t* op,
                                                        const void* factor,
                                                        trncclDataType_t type,
                                                        trncclComm_t comm);
TRNCCL_EXPORT trncclResult_t trncclRedOpDestroy(trncclRedOp_t op,
                                                trncclComm_t comm);

/* Memory that peers on the same machine can map: buffers in it take the fastest
 * path, with nothing more to do. Page-aligned, zeroed. MemFree while a call
 * uses it is an error of the caller. trncclOutOfResources: no memory. */
TRNCCL_EXPORT trncclResult_t trncclMemAlloc(void** pointer, size_t bytes);
TRNCCL_EXPORT trncclResult_t trncclMemFree(void* pointer);

/* Tells the communicator of memory that will be used often. A hint: every
 * buffer works without it. */
TRNCCL_EXPORT trncclResult_t trncclCommRegister(trncclComm_t comm,
                                                void* pointer, size_t bytes,
                                                void** handle);
TRNCCL_EXPORT trncclResult_t trncclCommDeregister(trncclComm_t comm,
                                                  void* handle);

/* ---- Requests ------------------------------------------------------------*/

/* *done becomes 1 once the call is complete; the result is then the call's. A
 * call completes by itself, whether or not anybody asks. Any thread. */
TRNCCL_EXPORT trncclResult_t trncclRequestTest(trncclRequest_t request,
                                               int* done);

/* Waits for at most patience_ms (TRNCCL_WAIT_FOREVER: as long as the call's own
 * deadline allows). trncclInProgress if it's not complete by then: that changes
 * nothing, and it can be waited for again. Any thread. */
TRNCCL_EXPORT trncclResult_t trncclRequestWait(trncclRequest_t request,
                                               int64_t patience_ms);

/* Calls notify(context) once, when the call is complete: at once if it is, else
 * from the thread that completes it, which may be the library's own. notify may
 * test requests, free them and start calls; it must neither wait long nor
 * destroy the communicator. One notice a request. Any thread. */
TRNCCL_EXPORT trncclResult_t trncclRequestNotify(trncclRequest_t request,
                                                 void (*notify)(void* context),
                                                 void* context);

/* Frees the request. An unfinished call goes on by itself: its buffers still
 * belong to the library until the communicator is finalized. */
TRNCCL_EXPORT trncclResult_t trncclRequestFree(trncclRequest_t request);

/* ---- Groups --------------------------------------------------------------*/

/* Calls between GroupStart and GroupEnd, by one thread, on any communicators,
 * are one submission: none of them blocks, and GroupEnd starts them all. Those
 * without a request are complete when GroupEnd returns. Groups nest. If a call
 * in the group is refused, GroupEnd starts nothing and returns the refusal. */
TRNCCL_EXPORT trncclResult_t trncclGroupStart(void);
TRNCCL_EXPORT trncclResult_t trncclGroupEnd(void);

/* ---- Collectives ---------------------------------------------------------*/

/* recv[i] = op over all ranks of send[i], on every rank. In place: send ==
 * recv. */
TRNCCL_EXPORT trncclResult_t trncclAllReduce(
    const void* send, void* recv, size_t count, trncclDataType_t type,
    trncclRedOp_t op, trncclComm_t comm, trncclRequest_t* request);

/* recv = root's send, on every rank. `send` is read at the root alone. In
 * place: send == recv. */
TRNCCL_EXPORT trncclResult_t trncclBroadcast(const void* send, void* recv,
                                             size_t count,
                                             trncclDataType_t type, int root,
                                             trncclComm_t comm,
                                             trncclRequest_t* request);

/* As AllReduce, at the root alone; the others' recv isn't touched and may be
 * NULL. In place: send == recv at the root. */
TRNCCL_EXPORT trncclResult_t trncclReduce(const void* send, void* recv,
                                          size_t count, trncclDataType_t type,
                                          trncclRedOp_t op, int root,
                                          trncclComm_t comm,
                                          trncclRequest_t* request);

/* recv = the ranks' `sendcount` elements one after the other. In place: send ==
 * recv + rank * sendcount. */
TRNCCL_EXPORT trncclResult_t trncclAllGather(const void* send, void* recv,
                                             size_t sendcount,
                                             trncclDataType_t type,
                                             trncclComm_t comm,
                                             trncclRequest_t* request);

/* Rank r brings recvcounts[r] elements, which lie at recv + displacements[r] at
 * the end (displacements NULL: one after the other). The arrays have an entry
 * for each rank, are alike on all ranks, and are read during the call alone.
 * In place: send == recv + displacements[rank]. */
TRNCCL_EXPORT trncclResult_t trncclAllGatherV(const void* send, void* recv,
                                              const size_t* recvcounts,
                                              const size_t* displacements,
                                              trncclDataType_t type,
                                              trncclComm_t comm,
                                              trncclRequest_t* request);

/* recv = rank's part, `recvcount` elements, of op over all ranks of send, which
 * has ranks * recvcount. In place: recv == send + rank * recvcount. */
TRNCCL_EXPORT trncclResult_t trncclReduceScatter(
    const void* send, void* recv, size_t recvcount, trncclDataType_t type,
    trncclRedOp_t op, trncclComm_t comm, trncclRequest_t* request);

/* Rank r gets sendcounts[r] elements, which lie one after the other in every
 * rank's send. In place: recv == send + the sum of the counts before rank's. */
TRNCCL_EXPORT trncclResult_t trncclReduceScatterV(const void* send, void* recv,
                                                  const size_t* sendcounts,
                                                  trncclDataType_t type,
                                                  trncclRedOp_t op,
                                                  trncclComm_t comm,
                                                  trncclRequest_t* request);

/* Part d of send, `count` elements, goes to rank d, as part `rank` of its
 * recv. Not in place. */
TRNCCL_EXPORT trncclResult_t trncclAllToAll(const void* send, void* recv,
                                            size_t count, trncclDataType_t type,
                                            trncclComm_t comm,
                                            trncclRequest_t* request);

/* sendcounts[d] elements at send + senddispls[d] go to rank d; recvcounts[s]
 * elements from rank s come to recv + recvdispls[s]. sendcounts[d] here must be
 * recvcounts[rank] there. Displacements may be NULL: one after the other. Not
 * in place. */
TRNCCL_EXPORT trncclResult_t trncclAllToAllV(
    const void* send, const size_t* sendcounts, const size_t* senddispls,
    void* recv, const size_t* recvcounts, const size_t* recvdispls,
    trncclDataType_t type, trncclComm_t comm, trncclRequest_t* request);

/* The root's recv = the ranks' `sendcount` elements one after the other; the
 * others' recv isn't touched. In place: send == recv + rank * sendcount at the
 * root. */
TRNCCL_EXPORT trncclResult_t trncclGather(const void* send, void* recv,
                                          size_t sendcount,
                                          trncclDataType_t type, int root,
                                          trncclComm_t comm,
                                          trncclRequest_t* request);

/* recv = part `rank`, `recvcount` elements, of the root's send. In place: recv
 * == send + rank * recvcount at the root. */
TRNCCL_EXPORT trncclResult_t trncclScatter(const void* send, void* recv,
                                           size_t recvcount,
                                           trncclDataType_t type, int root,
                                           trncclComm_t comm,
                                           trncclRequest_t* request);

/* Returns when all ranks have called it. */
TRNCCL_EXPORT trncclResult_t trncclBarrier(trncclComm_t comm,
                                           trncclRequest_t* request);

/* ---- Point to point ------------------------------------------------------*/

/* Sends to rank `peer` (itself too). Matched with a receive of the same
 * communicator and tag (>= 0); messages of one pair and tag keep their order.
 * Point-to-point calls don't order with collectives, other pairs or tags. A
 * send may complete before it's received; don't rely on it. */
TRNCCL_EXPORT trncclResult_t trncclSend(const void* send, size_t count,
                                        trncclDataType_t type, int peer,
                                        int64_t tag, trncclComm_t comm,
                                        trncclRequest_t* request);

/* Receives at most `count` elements from rank `peer` or TRNCCL_ANY_SOURCE, with
 * tag `tag` or TRNCCL_ANY_TAG. A longer message is an error
 * (trncclInvalidArgument) of both sides' calls that costs neither the
 * communicator nor the buffer. `status` may be NULL; it's filled at completion
 * and must live until then. */
TRNCCL_EXPORT trncclResult_t trncclRecv(void* recv, size_t count,
                                        trncclDataType_t type, int peer,
                                        int64_t tag, trncclStatus_t* status,
                                        trncclComm_t comm,
                                        trncclRequest_t* request);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* TRNCCL_H_ */
