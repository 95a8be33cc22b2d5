"""The classes of graphs whose constructors somebody has read, and what was found.

A class is admitted because its constructor only checks and keeps what it is given, as long as that
is what `op_state` lets pass: plain values, other Ops and Types, inner graphs. One that compiles,
calls, imports or reads what it is given is not. A class in neither list occurs in no graph, or has
not been reviewed: `tests/serialization/test_reviewed.py` lists those that a release adds.
"""

from __future__ import annotations

from collections.abc import Mapping

ADMITTED: Mapping[str, str] = {
    "pymc.data": "MinibatchIndexRV MinibatchOp",
    "pymc.dims.distributions.core": "MeasurableXTensorFromTensor",
    "pymc.distributions.censored": "CensoredRV",
    "pymc.distributions.continuous": (
        "AsymmetricLaplaceRV BetaClippedRV ExGaussianRV FlatRV HalfCauchyRV HalfFlatRV "
        "HalfStudentTRV InterpolatedRV KumaraswamyRV MoyalRV PolyaGammaRV RiceRV SkewNormalRV "
        "SkewStudentTRV TruncatedNormalRV WaldRV WeibullBetaRV _PolyaGammaLogDistFunc"
    ),
    "pymc.distributions.discrete": "DiscreteUniformRV DiscreteWeibullRV",
    "pymc.distributions.dist_math": "I0e I1e",
    "pymc.distributions.distribution": "DiracDeltaRV PartialObservedRV",
    "pymc.distributions.mixture": "MixtureRV _HurdleRV",
    "pymc.distributions.multivariate": (
        "CARRV DirichletMultinomialRV ICARRV KroneckerNormalRV LKJCorrRV MatrixNormalRV "
        "MvStudentTRV PrecisionMvNormalRV StickBreakingWeightsRV WishartRV ZeroSumNormalRV "
        "_LKJCholeskyCovRV"
    ),
    "pymc.distributions.timeseries": "AutoRegressiveRV GARCH11RV RandomWalkRV",
    "pymc.distributions.truncated": "TruncatedRV TruncationCheck",
    "pymc.initial_point": "InitialPoint",
    "pymc.logprob.abstract": "MeasurableBlockwise PromisedValuedRV ValuedRV",
    "pymc.logprob.binary": "MeasurableBitwise MeasurableComparison",
    "pymc.logprob.censoring": "MeasurableClip MeasurableRound",
    "pymc.logprob.checks": "MeasurableCheckAndRaise MeasurableSpecifyShape",
    "pymc.logprob.cumsum": "MeasurableCumsum",
    "pymc.logprob.mixture": "MeasurableIfElse MeasurableSwitchMixture MixtureRV",
    "pymc.logprob.order": "MeasurableMax MeasurableMaxDiscrete",
    "pymc.logprob.scan": "MeasurableScan",
    "pymc.logprob.switch": "MeasurableSwitchNonOverlapping",
    "pymc.logprob.tensor": (
        "MeasurableBroadcast MeasurableCast MeasurableDeepCopyOp MeasurableDimShuffle "
        "MeasurableJoin MeasurableJoinDims MeasurableMakeVector MeasurableScalarFromTensor "
        "MeasurableSpecifyAssumptions MeasurableSplit MeasurableSplitDims"
    ),
    "pymc.logprob.transform_value": "TransformedValue",
    "pymc.logprob.utils": "CheckParameterValue DiracDelta",
    "pymc.math": "BatchedDiag",
    "pymc.model.fgraph": "ModelDeterministic ModelFreeRV ModelNamed ModelObservedRV ModelPotential",
    "pymc.model.transform.deterministic": "ModelAnchor",
    "pymc.variational.minibatch_rv": "MinibatchRandomVariable",
    "pymc_extras.distributions.continuous": "GenExtremeRV",
    "pymc_extras.distributions.discrete": "GeneralizedPoissonRV",
    "pymc_extras.distributions.multivariate.joint_categorical": "JointCategoricalRV",
    "pymc_extras.distributions.pymc_extgenpareto": "ExtGenParetoRV",
    "pymc_extras.distributions.pymc_genpareto": "GenParetoRV",
    "pymc_extras.distributions.timeseries": "DiscreteMarkovChainRV",
    "pymc_extras.model.marginal.distributions.discrete_markov_chain": (
        "MarginalDiscreteMarkovChainRV"
    ),
    "pymc_extras.model.marginal.distributions.enumerable": "MarginalFiniteDiscreteRV",
    "pymc_extras.model.marginal.distributions.laplace": "MarginalLaplaceRV",
    "pymc_extras.model.marginal.distributions.normal": "NormalNormalMarginalRV",
    "pymc_extras.statespace.filters.distributions": (
        "KalmanFilterRV LinearGaussianStateSpaceRV SimulationSmootherRV StationaryVARRV"
    ),
    "pymc_extras.utils.spline": "BSplineBasis",
    "pytensor.assumptions.specify": "SpecifyAssumptions",
    "pytensor.compile.builders": "OpFromGraph",
    "pytensor.compile.ops": "DeepCopyOp ViewOp",
    "pytensor.compile.sharedvalue": "SharedVariable",
    "pytensor.conditional.op": "IfElse LazyIfElse",
    "pytensor.gradient": (
        "DisconnectedGrad DisconnectedType GradClip GradScale UndefinedGrad ZeroGrad"
    ),
    "pytensor.graph.basic": "Apply Constant NominalVariable Variable",
    "pytensor.graph.fg": "Output",
    "pytensor.graph.null_type": "NullType",
    "pytensor.link.c.type": "Generic",
    "pytensor.printing": "Print",
    "pytensor.raise_op": "Assert CheckAndRaise",
    "pytensor.scalar.basic": (
        "AND Abs Add ArcCos ArcCosh ArcSin ArcSinh ArcTan ArcTan2 ArcTanh Cast Ceil Clip "
        "Complex Composite Conj Cos Cosh EQ Exp Exp2 Expm1 Floor GE GT Identity Imag IntDiv "
        "Invert IsInf IsNan LE LT Log Log10 Log1p Log2 Maximum Minimum Mod Mul NEQ Neg OR Pow "
        "Real Reciprocal RoundHalfAwayFromZero RoundHalfToEven ScalarConstant ScalarType "
        "ScalarVariable Second Sign Sin Sinh Sqr Sqrt Sub Switch Tan Tanh TrueDiv Trunc XOR"
    ),
    "pytensor.scalar.loop": "ScalarLoop",
    "pytensor.scalar.math": (
        "BetaInc BetaIncInv Erf Erfc Erfcinv Erfcx Erfinv Gamma GammaInc GammaIncC "
        "GammaIncCInv GammaIncInv GammaLn Grad2F1Loop Hyp2F1 I0 I1 Ive J0 J1 Jv Kve Log1mexp "
        "NdtriExp Owens_t PolyGamma Psi Sigmoid Softplus TriGamma"
    ),
    "pytensor.scalar.sharedvar": "ScalarSharedVariable",
    "pytensor.scan.op": "Scan",
    "pytensor.sparse.basic": (
        "CSM CSMGrad CSMProperties Cast ColScaleCSC ConstructSparseFromList DenseFromSparse "
        "Diag EnsureSortedIndices GetItem2Lists GetItem2ListsGrad GetItem2d GetItemList "
        "GetItemListGrad GetItemScalar HStack Remove0 RowScaleCSC SparseFromDense Transpose "
        "VStack"
    ),
    "pytensor.sparse.linalg": "SparseBlockDiagonal",
    "pytensor.sparse.math": (
        "AddSparseDense AddSparseSparse AddSparseSparseData Dot EqualSparseDense "
        "EqualSparseSparse GreaterEqualSparseDense GreaterEqualSparseSparse "
        "GreaterThanSparseDense GreaterThanSparseSparse LessEqualSparseDense "
        "LessEqualSparseSparse LessThanSparseDense LessThanSparseSparse MultiplySparseDense "
        "MultiplySparseDenseVector MultiplySparseSparse NotEqualSparseDense "
        "NotEqualSparseSparse SamplingDot SpSum StructuredAddSparseDenseVector StructuredDot "
        "StructuredDotGradCSC StructuredDotGradCSR TrueDot Usmm"
    ),
    "pytensor.sparse.rewriting": (
        "AddSparseDenseC CSMGradC MulSDCSC MulSDCSR MulSVCSR SamplingDotCSR "
        "StructuredAddSparseDenseVectorCSR StructuredDotCSC StructuredDotCSR UsmmCscDense"
    ),
    "pytensor.sparse.sharedvar": "SparseTensorSharedVariable",
    "pytensor.sparse.type": "SparseTensorType",
    "pytensor.sparse.variable": "SparseConstant SparseVariable",
    "pytensor.tensor.basic": (
        "ARange Alloc AllocDiag AllocEmpty Choose ExtractDiag Eye Join MakeVector Nonzero "
        "PermuteRowElements ScalarFromTensor Split TensorFromScalar"
    ),
    "pytensor.tensor.blas.batched": "BatchedDot",
    "pytensor.tensor.blas.blas_c": "CGemv",
    "pytensor.tensor.blas.gemm": "Dot22 Dot22Scalar Gemm",
    "pytensor.tensor.blas.gemv": "Gemv",
    "pytensor.tensor.blockwise": "Blockwise BlockwiseWithCoreShape",
    "pytensor.tensor.einsum": "Einsum",
    "pytensor.tensor.elemwise": "CAReduce DimShuffle Elemwise",
    "pytensor.tensor.extra_ops": (
        "Bartlett CpuContiguous CumOp FillDiagonal FillDiagonalOffset RavelMultiIndex Repeat "
        "SearchsortedOp Unique UnravelIndex"
    ),
    "pytensor.tensor.fft": "IRFFTOp RFFTOp",
    "pytensor.tensor.fourier": "Fourier",
    "pytensor.tensor.linalg.constructors": "BlockDiagonal",
    "pytensor.tensor.linalg.decomposition.cholesky": "Cholesky",
    "pytensor.tensor.linalg.decomposition.eigen": "Eig Eigh Eigvalsh",
    "pytensor.tensor.linalg.decomposition.lu": "LU LUFactor PivotToPermutations",
    "pytensor.tensor.linalg.decomposition.qr": "QR",
    "pytensor.tensor.linalg.decomposition.schur": "QZ Schur",
    "pytensor.tensor.linalg.decomposition.svd": "SVD",
    "pytensor.tensor.linalg.inverse": "MatrixInverse MatrixPinv TensorInv",
    "pytensor.tensor.linalg.products": "Expm KroneckerProduct",
    "pytensor.tensor.linalg.solvers.general": "Solve",
    "pytensor.tensor.linalg.solvers.linear_control": (
        "SolveBilinearDiscreteLyapunov SolveDiscreteARE SolveSylvester TRSYL"
    ),
    "pytensor.tensor.linalg.solvers.lstsq": "Lstsq TensorSolve",
    "pytensor.tensor.linalg.solvers.psd": "CholeskySolve",
    "pytensor.tensor.linalg.solvers.triangular": "SolveTriangular",
    "pytensor.tensor.linalg.solvers.tridiagonal": "LUFactorTridiagonal SolveLUFactorTridiagonal",
    "pytensor.tensor.linalg.summary": "Det SLogDet",
    "pytensor.tensor.math": (
        "All Any Argmax Dot Max Min MulWithoutZeros NonZeroDimsCAReduce Prod ProdWithoutZeros Sum"
    ),
    "pytensor.tensor.optimize": "MinimizeOp MinimizeScalarOp RootOp RootScalarOp",
    "pytensor.tensor.pad": "Pad",
    "pytensor.tensor.random.basic": (
        "BernoulliRV BetaBinomialRV BetaRV BinomialRV CategoricalRV CauchyRV "
        "ChoiceWithoutReplacement DirichletRV ExponentialRV GammaRV GenGammaRV GeometricRV "
        "GumbelRV HalfCauchyRV HalfNormalRV HyperGeometricRV IntegersRV InvGammaRV LaplaceRV "
        "LogNormalRV LogisticRV MultinomialRV MvNormalRV NegBinomialRV NormalRV ParetoRV "
        "PermutationRV PoissonRV StudentTRV TriangularRV TruncExponentialRV UniformRV "
        "VonMisesRV WaldRV WeibullRV"
    ),
    "pytensor.tensor.random.op": "DefaultGeneratorMakerOp RandomVariableWithCoreShape",
    "pytensor.tensor.random.type": "RandomGeneratorType",
    "pytensor.tensor.random.variable": "RandomGeneratorSharedVariable RandomGeneratorVariable",
    "pytensor.tensor.reshape": "JoinDims SplitDims",
    "pytensor.tensor.rewriting.fused_elemwise": "FusedElemwise",
    "pytensor.tensor.rewriting.scalarize": (
        "ScalarCAReduce ScalarSubtensor ScalarizedElemwise ScalarizedJoin"
    ),
    "pytensor.tensor.shape": "Reshape Shape Shape_i SpecifyShape",
    "pytensor.tensor.sharedvar": "TensorSharedVariable",
    "pytensor.tensor.signal.conv": "Convolve1d Convolve2d",
    "pytensor.tensor.sort": "ArgSortOp SortOp",
    "pytensor.tensor.special": "LogAddExp LogSoftmax LogSumExp Softmax XLog1PY XLogY",
    "pytensor.tensor.subtensor": "AdvancedIncSubtensor AdvancedSubtensor IncSubtensor Subtensor",
    # A derivative of logsumexp and the like, since PyTensor 3.3.8.
    "pytensor.tensor.symbolic": "FusibleSymbolicOpDerivative",
    "pytensor.tensor.type": "TensorType",
    "pytensor.tensor.type_other": "MakeSlice NoneTypeT SliceConstant SliceType",
    "pytensor.tensor.variable": "TensorConstant TensorVariable",
    "pytensor.typed_list.basic": (
        "Append Count Extend GetItem Index Insert Length MakeList Remove Reverse "
        "TypedListConstant TypedListVariable"
    ),
    "pytensor.typed_list.type": "TypedListType",
    "pytensor.xtensor.basic": "Rename TensorFromXTensor XTensorFromTensor",
    "pytensor.xtensor.indexing": "Index IndexUpdate",
    "pytensor.xtensor.math": "Dot",
    "pytensor.xtensor.random.type": "RNGToXRNG XRNGToRNG XRandomGeneratorType",
    "pytensor.xtensor.random.variable": "XRandomGeneratorSharedVariable XRandomGeneratorVariable",
    "pytensor.xtensor.reduction": "XCumReduce XReduce",
    "pytensor.xtensor.shape": "Broadcast Concat ExpandDims Squeeze Stack Transpose UnStack",
    "pytensor.xtensor.type": "XTensorConstant XTensorSharedVariable XTensorType XTensorVariable",
    "pytensor.xtensor.vectorization": "XBlockwise XElemwise XRV",
    "scanopt_cli.loop.operators": "Loop TracedLoop",
    "scanopt_cli.loop.running_product": "RunningProduct",
}
"""Modules, and the names of their admitted classes."""

REFUSED: Mapping[tuple[str, str], str] = {
    ("pymc.data", "GenTensorVariable"): "it holds a generator of data",
    ("pymc.distributions.custom", "CustomDistRV"): "it draws by a function of its own",
    ("pymc.distributions.custom", "CustomSymbolicDistRV"): "it is made around functions",
    ("pymc.distributions.dist_math", "SplineWrapper"): "it holds a SciPy object and calls it",
    ("pymc.distributions.simulator", "SimulatorRV"): "it draws by a function of its own",
    ("pymc.distributions.timeseries", "EulerMaruyamaRV"): "it holds a function",
    ("pymc.logprob.transform_value", "TransformedValueRV"): "it holds a transform object",
    ("pymc.logprob.transforms", "MeasurableTransform"): "it holds a transform object",
    ("pymc.ode.ode", "DifferentialEquation"): "it calls a function when it is made",
    ("pymc_extras.statespace.filters.kalman_filter", "ConvergentKalmanOp"): (
        "it holds a filter object and calls it"
    ),
    ("pytensor.breakpoint", "PdbBreakpoint"): "it starts a debugger",
    ("pytensor.compile.ops", "FromFunctionOp"): "it calls a function",
    ("pytensor.link.c.op", "ExternalCOp"): "it reads and compiles C files",
    ("pytensor.link.c.params_type", "ParamsType"): "it holds names in C code",
    ("pytensor.link.c.type", "CDataType"): "it holds C code",
    ("pytensor.link.c.type", "CDataTypeConstant"): "it holds C code",
    ("pytensor.link.c.type", "CEnumType"): "it holds names in C code",
    ("pytensor.link.c.type", "EnumList"): "it holds names in C code",
    ("pytensor.link.c.type", "EnumType"): "it holds names in C code",
    ("pytensor.link.jax.ops", "JAXOp"): "it compiles a function",
}
"""Classes that are not admitted, and why."""
