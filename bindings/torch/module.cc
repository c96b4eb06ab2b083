// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The Python module trnccl._C.
#include <pybind11/chrono.h>
#include <torch/csrc/utils/pybind.h>

#include <utility>

#include "bindings/torch/flight_recorder.h"
#include "bindings/torch/process_group.h"

namespace trnccl::torch_binding {
namespace {

namespace py = pybind11;

using Made = c10::intrusive_ptr<c10d::Backend>;

Made Make(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
          const c10::intrusive_ptr<ProcessGroupNeuron::Options>& options) {
  return c10::make_intrusive<ProcessGroupNeuron>(store, rank, size, options);
}

}  // namespace

PYBIND11_MODULE(_C, module) {
  module.doc() = "The part of trnccl that's written in C++.";
  // Backend and Store are PyTorch's.
  py::module::import("torch.distributed");
  using Group = ProcessGroupNeuron;
  py::class_<Group::Options, c10d::Backend::Options,
             c10::intrusive_ptr<Group::Options>>(module, "Options")
      .def(py::init([](std::string backend, std::chrono::milliseconds timeout) {
             return c10::make_intrusive<Group::Options>(std::move(backend),
                                                        timeout);
           }),
           py::arg("backend") = "neuron",
           py::arg("timeout") = kBackendDefaultTimeout)
      .def_readwrite("profiled_as", &Group::Options::profiled_as)
      .def("__copy__",
           [](const Group::Options& self) {
             return c10::make_intrusive<Group::Options>(self);
           })
      .def("__deepcopy__", [](const Group::Options& self, const py::dict&) {
        return c10::make_intrusive<Group::Options>(self);
      });
  py::class_<Group, c10d::Backend, c10::intrusive_ptr<Group>>(
      module, "ProcessGroupNeuron")
      .def_property_readonly("options", &Group::options)
      // As Gloo's and NCCL's groups have it.
      .def("_set_default_timeout", &Group::setTimeout, py::arg("timeout"))
      .def("cancel_coalescing", &Group::CancelCoalescing)
      .def("suspend", &Group::suspend, py::call_guard<py::gil_scoped_release>())
      .def("resume", &Group::resume, py::call_guard<py::gil_scoped_release>())
      .def("memory_stats", &Group::getMemoryStats)
      .def("dump_calls", &Group::DumpCalls,
           py::call_guard<py::gil_scoped_release>());
  module.def("dump_flight_record",
             [] { return py::bytes(FlightRecorder::Get().Dump()); });
  module.def("make", &Make, py::arg("store"), py::arg("rank"), py::arg("size"),
             py::arg("options"), py::call_guard<py::gil_scoped_release>());
}

}  // namespace trnccl::torch_binding
